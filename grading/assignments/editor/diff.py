"""What is different between two versions of an assignment, one thing at a time; `app` puts it into words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

from grading.assignments.editor.folder import RUBRIC, TASK, plain
from grading.assignments.editor.text_lists import number
from grading.assignments.loader import MANIFEST
from grading.domain.base_value import Value
from grading.domain.check import CheckBase
from grading.domain.jobs import ENGLISH
from grading.domain.rubric import Criterion, Rubric

MOST_CHARS = 400
"""Of a text that is shown as it was and as it is."""


@dataclass(frozen=True)
class Side:
    """One of the two versions; `files` are digests by path."""

    rubric: Rubric
    task: str = ""
    instructions: Mapping[str, str] = field(default_factory=dict)
    share_solution: bool = False
    spoken_language: str = ENGLISH
    show_draft: bool = False
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Difference:
    """`what` happened (a word such as `criterion_added`), to what, and what stood and stands there."""

    what: str
    name: str = ""
    """Of the criterion, stage or file."""
    field: str = ""
    before: str = ""
    after: str = ""


def differences(old: Side, new: Side) -> tuple[Difference, ...]:
    """All of them, the rubric's first."""
    return (*_rubrics(old.rubric, new.rubric), *_words(old, new), *_files(old.files, new.files))


def _rubrics(old: Rubric, new: Rubric) -> Iterator[Difference]:
    if old.max_points != new.max_points:
        yield Difference("total", before=number(old.max_points), after=number(new.max_points))
    before = {one.id: one for one in old.criteria}
    after = {one.id: one for one in new.criteria}
    for one in new.criteria:
        if one.id not in before:
            yield Difference("criterion_added", one.title, after=number(one.points))
        else:
            yield from _criterion(before[one.id], one)
    for one in old.criteria:
        if one.id not in after:
            yield Difference("criterion_removed", one.title, before=number(one.points))
    kept = [key for key in before if key in after]
    if kept != [key for key in after if key in before]:
        yield Difference("order")
    yield from _adjustments(old, new)
    if old.equivalents != new.equivalents:
        yield Difference("equivalents", before=_json(old.equivalents), after=_json(new.equivalents))


def _criterion(old: Criterion, new: Criterion) -> Iterator[Difference]:
    yield from _fields(old, new, new.title, "checks")
    yield from _checks(new.title, old.checks, new.checks)


def _fields(old: Value, new: Value, title: str, passed_over: str) -> Iterator[Difference]:
    for name in type(new).model_fields:
        was, now = getattr(old, name), getattr(new, name)
        if name != passed_over and was != now:
            yield Difference("field", title, name, _said(was), _said(now))


def _adjustments(old: Rubric, new: Rubric) -> Iterator[Difference]:
    before = {one.id: one for one in old.adjustments}
    after = {one.id: one for one in new.adjustments}
    for one in new.adjustments:
        if one.id not in before:
            yield Difference("adjustment_added", one.title)
        else:
            yield from _fields(before[one.id], one, one.title, "unless")
            yield from _checks(one.title, before[one.id].unless, one.unless)
    for one in old.adjustments:
        if one.id not in after:
            yield Difference("adjustment_removed", one.title)
    if old.bonus_at_most != new.bonus_at_most:
        yield Difference("bonus_at_most", before=_said(old.bonus_at_most), after=_said(new.bonus_at_most))


def _checks(title: str, old: tuple[CheckBase, ...], new: tuple[CheckBase, ...]) -> Iterator[Difference]:
    was, now = [_json(plain(one)) for one in old], [_json(plain(one)) for one in new]
    for _, i1, i2, j1, j2 in SequenceMatcher(None, was, now, autojunk=False).get_opcodes():
        if was[i1:i2] == now[j1:j2]:
            continue
        gone, come = list(old[i1:i2]), list(new[j1:j2])
        for one in gone:
            same = next((other for other in come if type(other) is type(one)), None)
            if same is None:
                yield Difference("check_removed", title, _kind(one), before=_asks(one))
                continue
            come.remove(same)
            if plain(one) != plain(same):
                yield Difference("check_changed", title, _kind(one), _asks(one), _asks(same))
        for one in come:
            yield Difference("check_added", title, _kind(one), after=_asks(one))


def _words(old: Side, new: Side) -> Iterator[Difference]:
    if old.task.strip() != new.task.strip():
        yield Difference("task", before=_short(old.task), after=_short(new.task))
    for stage in sorted({*old.instructions, *new.instructions}):
        was, now = old.instructions.get(stage, ""), new.instructions.get(stage, "")
        if was.strip() != now.strip():
            yield Difference("instructions", stage, before=_short(was), after=_short(now))
    for name in ("share_solution", "show_draft", "spoken_language"):
        if getattr(old, name) != getattr(new, name):
            yield Difference(name, before=_said(getattr(old, name)), after=_said(getattr(new, name)))


def _files(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Difference]:
    """Those people put there; what the folder says in files of its own is told above."""
    was, now = _people(old), _people(new)
    yield from (Difference("file_added", path) for path in sorted(now.keys() - was.keys()))
    yield from (Difference("file_removed", path) for path in sorted(was.keys() - now.keys()))
    yield from (Difference("file_changed", p) for p in sorted(was.keys() & now.keys()) if was[p] != now[p])


def _people(files: Mapping[str, str]) -> dict[str, str]:
    said = (MANIFEST, RUBRIC, TASK)
    return {p: d for p, d in files.items() if p not in said and not p.startswith("instructions/")}


def _kind(check: CheckBase) -> str:
    return str(type(check).model_fields["kind"].default)


def _asks(check: CheckBase) -> str:
    asked: dict[str, Any] = plain(check)
    return _short("; ".join(f"{key}: {_said(value)}" for key, value in asked.items() if key != "kind"))


def _said(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return "" if value is None else "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, list | tuple) and all(isinstance(one, str | int | float) for one in value):
        return _short(", ".join(map(_said, value)))
    return _short(value if isinstance(value, str) else _json(value))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=list)


def _short(text: str) -> str:
    return text if len(text) <= MOST_CHARS else f"{text[:MOST_CHARS]}…"


def summary(found: Iterable[Difference]) -> dict[str, int]:
    """How many of each kind."""
    counts: dict[str, int] = {}
    for one in found:
        counts[one.what] = counts.get(one.what, 0) + 1
    return counts
