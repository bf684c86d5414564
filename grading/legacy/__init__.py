"""Turns a rubric file of the older autograder into criteria and checks, and names its contradictions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from grading.errors import AssignmentError
from grading.legacy.checks import PIPES, checks_for, ladder_for, same_names, shown_output
from grading.legacy.contradictions import contradictions
from grading.legacy.source import Legacy, Section, Task, parse, part_number
from grading.rubric import AllExecuted, Check, Criterion, Defines, NoErrors, Rubric, Uses, Words

DEFAULT_WORDS = 50


def is_legacy(data: object) -> bool:
    """Whether a JSON value is a rubric of that kind."""
    return isinstance(data, Mapping) and "rubric_elements" in data


def read_legacy_rubric(source: bytes | str | Mapping[str, Any]) -> tuple[Rubric, tuple[str, ...]]:
    """The rubric, and a plain sentence for each contradiction in the file.

    Section maxima win; what is below them is scaled. Raises AssignmentError that names the key.
    """
    legacy = parse(source)
    notes = contradictions(legacy)
    criteria: list[Criterion] = []
    for section in legacy.sections:
        if section.parts or section.questions:
            criteria += _divided(section, legacy, notes)
        else:
            criteria.append(_technical(section, legacy))
    try:
        rubric = Rubric(criteria=tuple(_unique(criteria)), equivalents=_equivalents(criteria, legacy))
    except ValidationError as error:
        raise AssignmentError(f"the rubric cannot be used: {error.errors()[0]['msg']}") from error
    return rubric, tuple(dict.fromkeys(notes))


def _divided(section: Section, legacy: Legacy, notes: list[str]) -> list[Criterion]:
    """A criterion a subtask and a question; their points, scaled, sum to the section's maximum."""
    leaves: list[tuple[Task, float]] = []
    ladders: dict[str, Check] = {}
    for part in section.parts:
        inner = sum(t.points for t in part.tasks) or len(part.tasks)
        leaves += [(t, part.points * (t.points or 1.0) / inner) for t in part.tasks]
        rules = [r for r in legacy.rules if part.number and part_number(r.part) == part.number]
        functions = {f for t in part.tasks for f in t.functions}
        functions |= {f for a in legacy.auto if a.number == part.number for f in a.functions}
        ladder = ladder_for(rules, sorted(functions), notes)
        if ladder is not None:
            ladders[_meant(part.tasks, [w for r in rules for w in (r.key, *r.patterns, *r.formats)])] = ladder
    leaves += [(q, q.points) for q in section.questions]
    points = scaled([raw for _, raw in leaves], section.max_points)
    questions = {q.key for q in section.questions}
    found: list[Criterion] = []
    for (task, _), worth in zip(leaves, points, strict=True):
        if worth <= 0:
            notes.append(f"{task.key} has no points and is left out.")
        elif task.key in questions:
            found.append(_question(task, worth, legacy))
        else:
            found.append(_task(task, worth, legacy, ladders.get(task.key)))
    return found


def _task(task: Task, points: float, legacy: Legacy, ladder: Check | None) -> Criterion:
    known = {*legacy.variables, *(n for a in legacy.auto for n in (*a.columns, *a.variables))}
    checks = checks_for(task, frozenset(known))
    if ladder is not None:  # a multiplier in the old file: weighs as much as all else together
        checks.append(ladder.model_copy(update={"weight": sum(c.weight for c in checks) or 1.0}))
    if legacy.strict.get("no_output_no_points") is True and checks:
        checks.append(shown_output(checks))
    return Criterion(
        id=slug(task.key), title=task.title, points=points, checks=tuple(checks), where=where_of(task)
    )


def _question(task: Task, points: float, legacy: Legacy) -> Criterion:
    words = [a.min_words for a in legacy.auto if a.min_words and a.number == task.number.split(".")[0]]
    words = words or [a.min_words for a in legacy.auto if a.min_words]
    return Criterion(
        id=slug(task.key),
        title=task.title,
        stage="feedback",
        points=points,
        checks=(Words(at_least=words[0] if words else DEFAULT_WORDS),),
        where=where_of(task),
    )


def _technical(section: Section, legacy: Legacy) -> Criterion:
    """The section without parts: runs without errors, uses what it names, makes the variables."""
    checks: list[Check] = [AllExecuted(weight=2), NoErrors(weight=2)]
    if any("%>%" in demand or "pipe" in demand.lower() for demand in section.demands):
        checks.append(Uses(any_of=PIPES, label="uses pipes"))
    for demand in section.demands:
        named = _named_functions(demand)
        if named:
            checks.append(Uses(all_of=named, label=demand))
    if legacy.variables:
        checks.append(Defines(all_of=legacy.variables, weight=2, label="all required variables"))
    numbers = {p.number for s in legacy.sections for p in s.parts}
    numbers |= {q.number.split(".")[0] for s in legacy.sections for q in s.questions}
    for auto in legacy.auto:
        if auto.number not in numbers and auto.functions:
            checks.append(Uses(all_of=auto.functions, label=auto.name, where=_heading("Part", auto.number)))
    return Criterion(
        id=slug(section.key),
        title=section.title,
        description="\n".join(section.demands),
        points=section.max_points,
        checks=tuple(checks),
    )


def _named_functions(demand: str) -> tuple[str, ...]:
    """The functions listed in brackets: `(str_trim, str_detect, etc.)`."""
    for inner in re.findall(r"\(([^()]*)\)", demand):
        names = [part.strip() for part in inner.split(",")]
        names = [n for n in names if re.fullmatch(r"[A-Za-z_.][\w.]*", n) and n.rstrip(".").lower() != "etc"]
        if len(names) > 1:
            return tuple(names)
    return ()


def where_of(task: Task) -> str | None:
    """Where a task stands: `Task 2.1` for `task_2_1_clean`; a part also holds its tasks."""
    return _heading(task.kind.capitalize(), task.number) if task.number else None


def _heading(kind: str, number: str) -> str | None:
    if not number:
        return None
    exact = number.replace(".", r"\.")
    if kind == "Part":
        return rf"\bPart\s*{exact}(?![\d.]*\d)|\b(?:Task|Question)\s*{exact}\.\d"
    return rf"\b{kind}\s*{exact}(?![\d.]*\d)"


def _meant(tasks: Sequence[Task], words: Iterable[str]) -> str:
    """The task whose own words occur most in the rules of its part."""
    said = set(re.findall(r"[a-z]{3,}", " ".join(words).lower()))

    def shared(task: Task) -> int:
        own = " ".join((*task.verification, *task.functions, *task.grading)).lower()
        return len(said & set(re.findall(r"[a-z]{3,}", own)))

    return max(tasks, key=shared).key


def scaled(raw: Sequence[float], total: float) -> list[float]:
    """The numbers in proportion, to two decimals, with exactly `total` as their sum."""
    whole = sum(raw)
    if not raw or whole <= 0:
        raw, whole = [1.0] * len(raw), float(len(raw) or 1)
    found = [round(total * r / whole, 2) for r in raw]
    if found:
        largest = max(range(len(found)), key=found.__getitem__)
        found[largest] = round(found[largest] + total - sum(found), 2)
    return found


def slug(key: str) -> str:
    """A criterion's id from a key of the file."""
    plain = re.sub(r"[^a-z0-9_.-]+", "-", key.lower()).strip("-_.")
    return plain[:60] or "criterion"


def _unique(criteria: Sequence[Criterion]) -> list[Criterion]:
    seen: dict[str, int] = {}
    found = []
    for criterion in criteria:
        seen[criterion.id] = seen.get(criterion.id, 0) + 1
        count = seen[criterion.id]
        found.append(
            criterion if count == 1 else criterion.model_copy(update={"id": f"{criterion.id}-{count}"})
        )
    return found


def _equivalents(criteria: Sequence[Criterion], legacy: Legacy) -> dict[str, tuple[str, ...]]:
    """The file's column mappings, and spellings of the functions its checks name."""
    found = {
        name: tuple(o for o in others if o != name)
        for name, others in legacy.mappings.items()
        if any(o != name for o in others)
    }
    for name in sorted(set(_function_names(c for criterion in criteria for c in criterion.checks))):
        others = same_names(name)
        if others:
            found[name] = tuple(dict.fromkeys((*found.get(name, ()), *others)))
    return found


def _function_names(checks: Iterable[Check]) -> Iterable[str]:
    for check in checks:
        if check.kind == "uses":
            yield from (*check.all_of, *check.any_of)
        elif check.kind == "alternatives":
            yield from _function_names(check.checks)
        elif check.kind == "ladder":
            yield from _function_names(c for rung in check.rungs for c in rung.when)
