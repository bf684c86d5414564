"""What a legacy rubric says twice and differently, a plain sentence each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from grading.assignments.legacy_import.checks import same_names
from grading.assignments.legacy_import.source import Legacy, Part, Section
from grading.checks.message_parts import listed


def contradictions(legacy: Legacy) -> list[str]:
    """All contradictions found, and which side was taken."""
    return [
        *_totals(legacy),
        *(line for section in legacy.sections for line in _sums(section)),
        *_autograder_points(legacy),
        *_spellings(legacy),
        *_columns(legacy),
        *_credits(legacy),
        *_strict(legacy),
    ]


def _n(value: float) -> str:
    return f"{value:g}"


def _totals(legacy: Legacy) -> Iterator[str]:
    total = sum(s.max_points for s in legacy.sections)
    if legacy.total is not None and abs(legacy.total - total) > 0.01:
        yield (
            f"total_points is {_n(legacy.total)}, but the section maxima sum to {_n(total)}; the "
            f"maxima count."
        )
    for section in legacy.sections:
        if section.weight is None:
            continue
        meant = section.weight if section.weight > 1 else section.weight * total
        if abs(meant - section.max_points) > 0.01:
            yield (
                f"{section.key} has weight {_n(section.weight)}, which would be {_n(meant)} points, but "
                f"max_points is {_n(section.max_points)}; max_points counts."
            )


def _sums(section: Section) -> Iterator[str]:
    inner = [p.points for p in section.parts] + [q.points for q in section.questions]
    if inner and abs(sum(inner) - section.max_points) > 0.01:
        yield (
            f"{section.key} has {_n(section.max_points)} points, but its parts sum to {_n(sum(inner))}; "
            "the section's points count and the parts are scaled."
        )
    for part in section.parts:
        tasks = sum(t.points for t in part.tasks)
        if part.divided and abs(tasks - part.points) > 0.01:
            yield (
                f"{part.key} has {_n(part.points)} points, but its subtasks sum to {_n(tasks)}; "
                "the part's points count and the subtasks are scaled."
            )


def _parts(legacy: Legacy) -> dict[str, Part]:
    return {p.number: p for s in legacy.sections for p in s.parts if p.number}


def _autograder_points(legacy: Legacy) -> Iterator[str]:
    parts = _parts(legacy)
    questions = {q.number.split(".")[0] for s in legacy.sections for q in s.questions if q.number}
    for auto in legacy.auto:
        part = parts.get(auto.number)
        if part is None and auto.number not in questions:
            points = f" with {_n(auto.points)} points" if auto.points else ""
            yield (
                f"{auto.key} is an autograder section{points}, but no section of the rubric holds it; "
                f"what it "
                "asks for is checked as part of the technical section."
            )
        elif part is not None and auto.points is not None and abs(auto.points - part.points) > 0.01:
            yield (
                f"{part.key} has {_n(part.points)} points in the rubric and {_n(auto.points)} in the "
                f"autograder "
                f"section {auto.key}; the rubric's count."
            )


def _spellings(legacy: Legacy) -> Iterator[str]:
    verified = {v.rstrip("(") for t in legacy.tasks for v in t.verification if v.endswith("(")}
    asked = {f for auto in legacy.auto for f in auto.functions}
    for name in sorted(verified):
        other = [n for n in same_names(name) if n in asked and n not in verified]
        if other and name not in asked:
            yield f"The subtasks ask for {name}, the autograder for {listed(other)}; both count."


def _columns(legacy: Legacy) -> Iterator[str]:
    parts = _parts(legacy)
    for auto in legacy.auto:
        part = parts.get(auto.number)
        if part is None:
            continue
        verified = {v.rstrip("(") for t in part.tasks for v in (*t.verification, *t.functions)}
        names = {v for t in part.tasks for v in t.verification if re.fullmatch(r"\w+_\w+", v)}
        lacking = [c for c in auto.columns if c not in verified]
        if lacking:
            yield (
                f"{auto.key} requires {listed(lacking)}, which no subtask of {part.key} verifies; not "
                f"checked."
            )
        extra = sorted(names - set(auto.columns)) if auto.columns else []
        if extra:
            yield (
                f"The subtasks of {part.key} verify {listed(extra)}, which {auto.key} does not require; "
                f"checked."
            )
        functions = _known(auto.functions) - verified
        if functions and any(t.verification for t in part.tasks):
            lost = sorted(f for f in functions if not set(same_names(f)) & verified)
            if lost:
                yield (
                    f"{auto.key} lists {listed(lost)}, which no subtask of {part.key} verifies; not checked."
                )


def _known(functions: Iterable[str]) -> set[str]:
    return set(functions)


def _credits(legacy: Legacy) -> Iterator[str]:
    for task in legacy.tasks:
        numbers = task.number.split(".")[0]
        rules = [r for r in legacy.rules if re.match(rf"[a-z]+_?{numbers}(?!\d)", r.part)] if numbers else []
        for way, text in task.grading.items():
            said = _percent(text)
            words = set(way.lower().split("_"))
            ranked = [(len(words & set(r.key.lower().split("_"))), r) for r in rules]
            best = max((score for score, _ in ranked), default=0)
            near = [r for score, r in ranked if score == best and best]
            if said is None or not near or any(abs(r.multiplier - said) < 0.005 for r in near):
                continue
            yield (
                f"{task.key} gives {_n(said * 100)} % for {way}, the partial credit rule {near[0].key} gives "
                f"{_n(near[0].multiplier * 100)} %; the rule counts."
            )


def _percent(text: str) -> float | None:
    hit = re.search(r"(\d{1,3})\s*%", text)
    if hit:
        return int(hit.group(1)) / 100
    return 1.0 if text.lower().startswith("full") else None


def _strict(legacy: Legacy) -> Iterator[str]:
    deductions = {key: text for s in legacy.sections for key, text in s.deductions.items()}
    limit = legacy.strict.get("template_only_max_percent")
    template = deductions.get("template_only", "")
    if isinstance(limit, float) and limit > 0 and "0 points" in template:
        yield (
            f"strict_scoring_rules allow up to {_n(limit)} % for an unchanged template, the deduction "
            "template_only allows none; nothing added earns nothing."
        )
    no_outputs, cells = deductions.get("no_outputs", ""), deductions.get("unexecuted_cells", "")
    if "0 points" in no_outputs and cells:
        yield (
            "Cells without outputs cost their whole section by one deduction (no_outputs) and a few "
            "points each by another (unexecuted_cells); the share of executed cells counts instead."
        )
    if (
        legacy.strict.get("no_output_no_points") is True
        and legacy.strict.get("missing_section_zero") is False
    ):
        yield (
            "strict_scoring_rules give no points without outputs, but do not set a missing section to zero; "
            "a section in which nothing was added earns nothing."
        )
