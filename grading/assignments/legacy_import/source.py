"""Reads a rubric file of the older autograder into plain values, which the package maps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from grading.assignments.legacy_import.json_reader import Keys, first_number, parse_json, percent
from grading.domain.errors import AssignmentError
from grading.domain.messages import define_message

FORM_NOT_READ = define_message(
    "legacy_rubric.form_not_read",
    "this format of rubrics is not supported; write the criteria as rubric_elements, or in Grader's "
    "own format",
)
NO_SECTION = define_message(
    "legacy_rubric.no_section", "is missing; a rubric needs at least one section there"
)
NO_MAX_POINTS = define_message("legacy_rubric.no_max_points", "is missing; enter the points of the section")

HINTS = ("note", "grading_note", "accepts", "accepts_approaches", "required_scenarios", "category")
"""Keys of a task that tell whoever judges it what to accept."""
OTHERS = ("rubric_categories", "components")
"""Where other files of that autograder keep what earns points; they name nothing that can be checked."""
LEVELS = {
    "fail": 0,
    "poor": 1,
    "needs_improvement": 1,
    "inadequate": 1,
    "weak": 1,
    "adequate": 2,
    "satisfactory": 2,
    "fair": 2,
    "good": 3,
    "proficient": 3,
    "excellent": 4,
    "outstanding": 4,
}
"""Names of levels in such files, from the lowest to the highest."""
_POINTED = re.compile(r"\(\s*(\d+(?:\.\d+)?)\s*(?:pts?|points?)\.?\s*\)", re.IGNORECASE)


@dataclass(frozen=True)
class Task:
    """A subtask, a part without subtasks or a question: what it is worth and how it was verified."""

    key: str
    title: str
    points: float
    number: str
    """As students see it: `2.1`; empty when the key has none."""
    kind: str
    verification: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    """Functions of which one is enough."""
    grading: Mapping[str, str] = field(default_factory=dict)
    hints: tuple[str, ...] = ()
    """What a person or a model that judges it should know."""
    levels: tuple[str, ...] = ()
    """What each level means, the lowest first; empty when the file names none."""
    min_words: int | None = None


@dataclass(frozen=True)
class Part:
    """A numbered part of the assignment."""

    key: str
    number: str
    points: float
    tasks: tuple[Task, ...]
    divided: bool
    """Whether it has subtasks; without, its one task stands for the part."""


@dataclass(frozen=True)
class Section:
    """A section of the rubric with its maximum."""

    key: str
    title: str
    max_points: float
    weight: float | None
    parts: tuple[Part, ...] = ()
    questions: tuple[Task, ...] = ()
    demands: tuple[str, ...] = ()
    deductions: Mapping[str, str] = field(default_factory=dict)
    levels: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()
    """Sentences about what was checked automatically."""
    manual: bool = False
    """Whether the file says that a person judges it."""
    rules: Mapping[str, str] = field(default_factory=dict)
    """Its scoring rules."""


@dataclass(frozen=True)
class AutoPart:
    """What the older autograder looked for in a part."""

    key: str
    number: str
    name: str
    points: float | None
    variables: tuple[str, ...]
    functions: tuple[str, ...]
    columns: tuple[str, ...]
    min_words: int | None


@dataclass(frozen=True)
class Rule:
    """One rule for partial credit."""

    key: str
    part: str
    kind: str
    multiplier: float
    priority: float
    note: str
    patterns: tuple[str, ...]
    not_patterns: tuple[str, ...]
    formats: tuple[str, ...]
    least: int


@dataclass(frozen=True)
class Validation:
    """A rule on the whole work: what it needs at least, and what happens without it."""

    key: str
    minimum: float | None
    counts: str
    """The key of the minimum, such as `minimum_usage`."""
    action: str
    description: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Detection:
    """How the older autograder knew work that is only the template."""

    indicators: tuple[str, ...] = ()
    minimum: int = 0
    longer: float = 1.0
    """How many times as long as the template the work had to be."""
    cap: float | None = None


@dataclass(frozen=True)
class Bonus:
    """Something that earned points on top."""

    key: str
    points: float
    description: str


@dataclass(frozen=True)
class Legacy:
    """All of the file that says what earns points."""

    title: str
    total: float | None
    sections: tuple[Section, ...]
    variables: tuple[str, ...]
    functions: tuple[str, ...]
    mappings: Mapping[str, tuple[str, ...]]
    auto: tuple[AutoPart, ...]
    rules: tuple[Rule, ...]
    strict: Mapping[str, Any]
    validations: tuple[Validation, ...]
    detection: Detection
    bonus: tuple[Bonus, ...]
    shallow: float | None
    """Share that an answer with too few words loses, where the file says it for all questions."""
    left: Mapping[str, str]
    """Path and text of each value of the file that is not one of these."""

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All subtasks and undivided parts."""
        return tuple(t for s in self.sections for p in s.parts for t in p.tasks)

    @property
    def questions(self) -> tuple[Task, ...]:
        """All questions."""
        return tuple(q for s in self.sections for q in s.questions)


def parse(source: bytes | str | Mapping[str, Any]) -> Legacy:
    """The values of a legacy rubric file; raises AssignmentError that names the key."""
    keys = Keys(source if isinstance(source, Mapping) else parse_json(source))
    other = next((key for key in OTHERS if key in keys and "rubric_elements" not in keys), "")
    if other:
        raise AssignmentError(FORM_NOT_READ, at=other)
    sections = tuple(_section(key, one) for key, one in keys.table("rubric_elements").tables())
    if not sections:
        raise AssignmentError(NO_SECTION, at="rubric_elements")
    info, checks = keys.table("assignment_info"), keys.table("autograder_sandbox")
    title = [info.text(key) for key in ("title", "name", "description")]
    mappings = checks.table("flexible_column_matching").table("mappings")
    checks.table("flexible_column_matching").flag("enabled")
    critical = keys.table("critical_functions").texts("required")
    strict = keys.table("strict_scoring_rules")
    keys.flag("strict_scoring_enabled")
    return Legacy(
        title=next(filter(None, title), ""),
        total=info.number("total_points"),
        sections=sections,
        variables=checks.texts("required_variables"),
        functions=tuple(dict.fromkeys((*checks.texts("required_functions"), *critical))),
        mappings={key: mappings.texts(key) for key in mappings.entries()},
        auto=tuple(_auto(key, one) for key, one in checks.table("sections").tables()),
        rules=_rules(keys.table("partial_credit_rules")),
        strict=_strict(strict),
        validations=_validations(keys.table("score_validation")),
        detection=_detection(keys.table("template_detection")),
        bonus=tuple(_bonus(keys)),
        shallow=percent(keys.table("common_issues").table("shallow_reflections").text("penalty"))
        if keys.is_table("common_issues") and keys.table("common_issues").is_table("shallow_reflections")
        else None,
        left=keys.left,
    )


def part_number(key: str) -> str:
    """`4` for `part4_date_basics`; empty without a number."""
    hit = re.match(r"[a-z]+_?(\d+)", key, re.IGNORECASE)
    return hit.group(1) if hit else ""


def humanised(key: str) -> str:
    """`date_time_operations` as `Date time operations`."""
    plain = re.sub(r"[_\s]+", " ", key).strip()
    return plain[:1].upper() + plain[1:]


def _section(key: str, data: Keys) -> Section:
    parts = tuple(_part(one, inner) for one, inner in data.table("required_sections").tables())
    demands, levels = _demands(data)
    questions = tuple(_questions(data)) or _pointed(key, demands)
    points = data.number("max_points")
    inner = sum(p.points for p in parts) + sum(q.points for q in questions)
    if not points and not inner:
        raise AssignmentError(NO_MAX_POINTS, at=data.at("max_points"))
    rules = data.table("scoring_rules").named_texts()
    return Section(
        key=key,
        title=data.text("description") or humanised(key),
        max_points=points or inner,
        weight=data.number("weight"),
        parts=parts,
        questions=questions,
        demands=demands,
        deductions=data.table("deductions").named_texts(),
        levels=levels,
        checked=data.texts("automated_checks"),
        manual=data.text("category") == "manual",
        rules=rules,
    )


def _demands(data: Keys) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a section asks for, and what its levels mean."""
    demands: tuple[str, ...] = ()
    for key in ("criteria", "evaluation_criteria", "questions_assessed"):
        if not data.is_table(key):
            demands += data.texts(key)
    for key in ("criteria", "scoring_guide", "scoring"):
        if data.is_table(key):
            return demands, _levels(data.table(key))
    return demands, ()


def _levels(data: Keys) -> tuple[str, ...]:
    """What each level means, the lowest first, without points."""
    found: list[tuple[int, str]] = []
    for key in data.entries():
        if key not in LEVELS:
            continue
        if data.is_table(key):
            said = data.table(key).text("description")
            data.table(key).text("points")
        else:
            said = data.text(key)
        found.append((LEVELS[key], f"{humanised(key).lower()}: {said}" if said else humanised(key).lower()))
    return tuple(said for _, said in sorted(found, key=lambda one: one[0]))


def _questions(data: Keys) -> Iterable[Task]:
    for key in ("questions", "reflection_questions", "evaluation_criteria"):
        if data.is_table(key):
            for name, inner in data.table(key).tables():
                yield _task(name, inner)


def _pointed(key: str, demands: tuple[str, ...]) -> tuple[Task, ...]:
    """Demands that each say their points, such as `Filtering (2.5 pts)`, as tasks of their own."""
    hits = [_POINTED.search(one) for one in demands]
    if not demands or not all(hits):
        return ()
    found = []
    for number, (said, hit) in enumerate(zip(demands, hits, strict=True), start=1):
        title = _POINTED.sub("", said).strip(" :-")
        points = float(hit.group(1)) if hit else 0.0
        asked = re.match(r"question\s*(\d+)", title, re.IGNORECASE)
        found.append(
            Task(
                f"{key}_{number}", title, points, asked.group(1) if asked else "", "question" if asked else ""
            )
        )
    return tuple(found)


def _part(key: str, data: Keys) -> Part:
    tasks = tuple(_task(one, inner) for one, inner in data.table("subtasks").tables())
    points = data.number("points") or sum(t.points for t in tasks)
    if tasks:
        data.text("description")
    return Part(key, part_number(key), points, tasks or (_task(key, data),), bool(tasks))


def _task(key: str, data: Keys) -> Task:
    hit = re.match(r"([a-z]+)_?(\d+(?:_\d+)*)", key, re.IGNORECASE)
    words = data.number("minimum_words")
    hints = tuple(f"{humanised(name)}: {said}" for name in HINTS if (said := data.text(name)))
    return Task(
        key=key,
        title=data.text("description") or humanised(key),
        points=data.number("points") or 0.0,
        number=hit.group(2).replace("_", ".") if hit else "",
        kind=hit.group(1).lower() if hit else "",
        verification=data.texts("verification"),
        functions=data.texts("accepts_functions"),
        grading=data.table("grading").named_texts(),
        hints=hints,
        levels=_levels(data),
        min_words=int(words) if words else None,
    )


def _auto(key: str, data: Keys) -> AutoPart:
    words = data.number("min_words_per_question")
    return AutoPart(
        key=key,
        number=part_number(key),
        name=data.text("name") or humanised(key),
        points=data.number("points"),
        variables=data.texts("variables"),
        functions=data.texts("functions"),
        columns=data.texts("required_columns"),
        min_words=int(words) if words else None,
    )


def _rules(data: Keys) -> tuple[Rule, ...]:
    found: list[Rule] = []
    for part, rules in data.tables():
        for key, rule in rules.tables():
            multiplier = rule.number("multiplier")
            pattern = rule.text("pattern")
            rule.number("max_count")  # a rule of a lower priority is only asked when this one is not met
            found.append(
                Rule(
                    key=key,
                    part=part,
                    kind=rule.text("condition_type"),
                    multiplier=min(1.0, 1.0 if multiplier is None else multiplier),
                    priority=rule.number("priority") or 0.0,
                    note=rule.text("explanation"),
                    patterns=(pattern,) if pattern else rule.texts("patterns"),
                    not_patterns=rule.texts("not_patterns"),
                    formats=rule.texts("formats"),
                    least=int(rule.number("min_count") or 1),
                )
            )
    return tuple(sorted(found, key=lambda r: (r.part, r.priority)))


def _strict(data: Keys) -> dict[str, Any]:
    """The rules that have a counterpart here; the others stay unasked."""
    found: dict[str, Any] = {}
    for key in ("no_output_no_points", "missing_section_zero"):
        if (said := data.flag(key)) is not None:
            found[key] = said
    for key in ("template_only_max_percent", "wrong_output_max_credit"):
        if key in data and (share := data.number(key)) is not None:
            found[key] = share
    return found


def _validations(data: Keys) -> tuple[Validation, ...]:
    data.flag("enabled")
    found = []
    for key, rule in data.table("rules").tables():
        counts = next((k for k in rule.entries() if k == "threshold" or k.startswith("minimum_")), "")
        found.append(
            Validation(
                key=key,
                minimum=rule.number(counts) if counts else None,
                counts=counts,
                action=rule.text("action"),
                examples=rule.texts("examples"),
                description=rule.text("description"),
            )
        )
    return tuple(found)


def _detection(data: Keys) -> Detection:
    rules = data.table("detection_rules")
    enabled = data.flag("enabled")
    data.text("template_file")  # the starter of the assignment takes its place
    rules.text("description")
    found = Detection(
        indicators=rules.texts("key_indicators"),
        minimum=int(rules.number("minimum_indicators") or 0),
        longer=rules.number("code_length_threshold") or 1.0,
        cap=percent(rules.text("penalty_if_template_only")),
    )
    return Detection() if enabled is False else found


def _bonus(keys: Keys) -> Iterable[Bonus]:
    guidelines = keys.table("grading_guidelines") if keys.is_table("grading_guidelines") else None
    for data in (keys, guidelines):
        if data is None or not data.is_table("bonus_opportunities"):
            continue
        offers = data.table("bonus_opportunities")
        for key in offers.entries():
            if offers.is_table(key):
                offer = offers.table(key)
                yield Bonus(key, offer.number("points") or 0.0, offer.text("description"))
            else:
                said = offers.text(key)
                yield Bonus(key, first_number(said) or 0.0, said)
