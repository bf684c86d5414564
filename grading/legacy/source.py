"""Reads a rubric file of the older autograder into plain values; `grading.legacy` maps them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from grading.errors import AssignmentError


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
    parts: tuple[Part, ...]
    questions: tuple[Task, ...]
    demands: tuple[str, ...]
    deductions: Mapping[str, str]


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
class Legacy:
    """All of the file that says what earns points."""

    title: str
    total: float | None
    sections: tuple[Section, ...]
    variables: tuple[str, ...]
    mappings: Mapping[str, tuple[str, ...]]
    auto: tuple[AutoPart, ...]
    rules: tuple[Rule, ...]
    strict: Mapping[str, Any]

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All subtasks and undivided parts."""
        return tuple(t for s in self.sections for p in s.parts for t in p.tasks)


def parse(source: bytes | str | Mapping[str, Any]) -> Legacy:
    """The values of a legacy rubric file; raises AssignmentError that names the key."""
    data = source if isinstance(source, Mapping) else _json(source)
    info = _table(data, "assignment_info", "")
    elements = _table(data, "rubric_elements", "")
    if not elements:
        raise AssignmentError("rubric_elements: is missing; a rubric needs at least one section there")
    checks = _table(data, "autograder_checks", "")
    matching = _table(checks, "flexible_column_matching", "autograder_checks.")
    mappings = _table(matching, "mappings", "autograder_checks.flexible_column_matching.")
    return Legacy(
        title=str(info.get("title") or info.get("name") or ""),
        total=_number(info, "total_points", "assignment_info."),
        sections=tuple(_section(str(k), v) for k, v in elements.items()),
        variables=_texts(checks, "required_variables", "autograder_checks."),
        mappings={str(k): _texts(mappings, k, "mappings.") for k in mappings},
        auto=tuple(_auto(str(k), v) for k, v in _table(checks, "sections", "autograder_checks.").items()),
        rules=_rules(_table(data, "partial_credit_rules", "")),
        strict=_table(data, "strict_scoring_rules", ""),
    )


def part_number(key: str) -> str:
    """`4` for `part4_date_basics`; empty without a number."""
    hit = re.match(r"[a-z]+_?(\d+)", key, re.IGNORECASE)
    return hit.group(1) if hit else ""


def _json(source: bytes | str) -> Mapping[str, Any]:
    try:
        data = json.loads(source)
    except (ValueError, RecursionError) as error:
        raise AssignmentError(f"the rubric is not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise AssignmentError("the rubric must be a JSON object with rubric_elements")
    return data


def _table(data: Mapping[str, Any], key: str, at: str) -> Mapping[str, Any]:
    value = data.get(key, {})
    if not isinstance(value, Mapping):
        raise AssignmentError(f"{at}{key}: must be an object with named entries")
    return value


def _texts(data: Mapping[str, Any], key: str, at: str) -> tuple[str, ...]:
    value = data.get(key, [])
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise AssignmentError(f"{at}{key}: must be a list of texts")
    return tuple(v for v in value if v.strip())


def _number(data: Mapping[str, Any], key: str, at: str) -> float | None:
    value = data.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
        raise AssignmentError(f"{at}{key}: must be a number from 0 on")
    return float(value)


def _section(key: str, data: Any) -> Section:
    at = f"rubric_elements.{key}"
    if not isinstance(data, Mapping):
        raise AssignmentError(f"{at}: must be an object")
    parts = tuple(
        _part(str(k), v, f"{at}.required_sections.{k}")
        for k, v in _table(data, "required_sections", f"{at}.").items()
    )
    questions = tuple(
        _task(str(k), v, f"{at}.questions.{k}") for k, v in _table(data, "questions", f"{at}.").items()
    )
    points = _number(data, "max_points", f"{at}.")
    inner = sum(p.points for p in parts) + sum(q.points for q in questions)
    if not points and not inner:
        raise AssignmentError(f"{at}.max_points: is missing; say how many points the section has")
    deductions = _table(data, "deductions", f"{at}.")
    return Section(
        key=key,
        title=str(data.get("description") or humanised(key)),
        max_points=points or inner,
        weight=_number(data, "weight", f"{at}."),
        parts=parts,
        questions=questions,
        demands=_texts(data, "criteria", f"{at}."),
        deductions={str(k): str(v) for k, v in deductions.items()},
    )


def humanised(key: str) -> str:
    """`date_time_operations` as `Date time operations`."""
    plain = re.sub(r"[_\s]+", " ", key).strip()
    return plain[:1].upper() + plain[1:]


def _part(key: str, data: Any, at: str) -> Part:
    if not isinstance(data, Mapping):
        raise AssignmentError(f"{at}: must be an object")
    subtasks = _table(data, "subtasks", f"{at}.")
    tasks = tuple(_task(str(k), v, f"{at}.subtasks.{k}") for k, v in subtasks.items())
    points = _number(data, "points", f"{at}.") or sum(t.points for t in tasks)
    return Part(key, part_number(key), points, tasks or (_task(key, data, at),), bool(tasks))


def _task(key: str, data: Any, at: str) -> Task:
    if not isinstance(data, Mapping):
        raise AssignmentError(f"{at}: must be an object")
    hit = re.match(r"([a-z]+)_?(\d+(?:_\d+)*)", key, re.IGNORECASE)
    grading = _table(data, "grading", f"{at}.")
    return Task(
        key=key,
        title=str(data.get("description") or humanised(key)),
        points=_number(data, "points", f"{at}.") or 0.0,
        number=hit.group(2).replace("_", ".") if hit else "",
        kind=hit.group(1).lower() if hit else "",
        verification=_texts(data, "verification", f"{at}."),
        functions=_texts(data, "accepts_functions", f"{at}."),
        grading={str(k): str(v) for k, v in grading.items()},
    )


def _auto(key: str, data: Any) -> AutoPart:
    at = f"autograder_checks.sections.{key}."
    if not isinstance(data, Mapping):
        raise AssignmentError(f"{at[:-1]}: must be an object")
    words = _number(data, "min_words_per_question", at)
    return AutoPart(
        key=key,
        number=part_number(key),
        name=str(data.get("name") or humanised(key)),
        points=_number(data, "points", at),
        variables=_texts(data, "variables", at),
        functions=_texts(data, "functions", at),
        columns=_texts(data, "required_columns", at),
        min_words=int(words) if words else None,
    )


def _rules(data: Mapping[str, Any]) -> tuple[Rule, ...]:
    found: list[Rule] = []
    for part, rules in data.items():
        for key in _table(data, part, "partial_credit_rules."):
            at = f"partial_credit_rules.{part}.{key}."
            rule = _table(rules, key, at[: -len(key) - 1])
            multiplier = _number(rule, "multiplier", at)
            pattern = rule.get("pattern")
            found.append(
                Rule(
                    key=str(key),
                    part=str(part),
                    kind=str(rule.get("condition_type", "")),
                    multiplier=min(1.0, 1.0 if multiplier is None else multiplier),
                    priority=_number(rule, "priority", at) or 0.0,
                    note=str(rule.get("explanation", "")),
                    patterns=(pattern,) if isinstance(pattern, str) else _texts(rule, "patterns", at),
                    not_patterns=_texts(rule, "not_patterns", at),
                    formats=_texts(rule, "formats", at),
                    least=int(_number(rule, "min_count", at) or 1),
                )
            )
    return tuple(sorted(found, key=lambda r: (r.part, r.priority)))
