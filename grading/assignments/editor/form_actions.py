"""What the buttons of the rubric's form do: add, remove, copy and move parts of the raw form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from grading.assignments.editor.form import MOST, Raw, Shape, blank, shapes
from grading.domain.check import check_kinds
from grading.domain.rubric import Criterion, Rubric

_ACTION = re.compile(r"(add|remove|up|down|copy|move) ([a-z0-9_.]{1,200})(?: ([0-9]{1,4}))?")
MOVES = ("up ", "down ", "move ")
"""How actions begin that move a part."""
NEW = ("add ", "copy ")
"""How actions begin that make one."""


def act(raw: Raw, action: str, chosen: Mapping[str, str]) -> str:
    """Add, remove, copy or move a part, as a button says it; the field to go on with, or nothing.

    `chosen` maps a list's name to the kind of check that is to be added. `move criteria.2 0` moves to a
    place.
    """
    found = _ACTION.fullmatch(action)
    if found is None:
        return ""
    what, name = found[1], found[2]
    if what == "add":
        return _add(raw, name, chosen.get(name, ""))
    place, _, index = name.rpartition(".")
    rows = part_at(raw, place)
    if not isinstance(rows, list) or not index.isdecimal() or int(index) >= len(rows):
        return ""
    at = int(index)
    if what == "remove":
        del rows[at]
        return f"{place}.{min(at, len(rows) - 1)}" if rows else place
    if what == "copy":
        rows.insert(at + 1, _copied(rows[at]))
        return f"{place}.{at + 1}"
    to = int(found[3] or at) if what == "move" else at - 1 if what == "up" else at + 1
    if 0 <= to < len(rows):
        rows.insert(to, rows.pop(at))
        return f"{place}.{to}"
    return name


def _add(raw: Raw, name: str, kind: str) -> str:
    rows, shape = part_at(raw, name), _shape_at(name)
    if not isinstance(rows, list) or shape is None or len(rows) >= MOST:
        return ""
    if shape.kind == "checks":
        rows.append(blank(check_kinds()[kind if kind in check_kinds() else "uses"]))
    elif shape.kind == "parts" and shape.part is not None:
        rows.append(blank(shape.part))
    elif shape.kind == "texts":
        rows.append("")
    return f"{name}.{len(rows) - 1}"


def part_at(raw: Any, name: str) -> Any:
    """The part of a raw form that a field's name stands for, or nothing."""
    for part in name.split("."):
        if isinstance(raw, list) and part.isdecimal() and int(part) < len(raw):
            raw = raw[int(part)]
        elif isinstance(raw, dict) and part in raw:
            raw = raw[part]
        else:
            return None
    return raw


def _shape_at(name: str) -> Shape | None:
    last = name.rpartition(".")[2]
    models: tuple[type[BaseModel], ...] = (Rubric, Criterion, *check_kinds().values())
    parts = [s.part for m in models for s in shapes(m) if s.kind == "parts" and s.part is not None]
    return next((s for m in (*models, *parts) for s in shapes(m) if s.name == last), None)


def _copied(raw: Any) -> Any:
    if isinstance(raw, dict):
        return {key: "" if key == "id" else _copied(one) for key, one in raw.items()}
    return [_copied(one) for one in raw] if isinstance(raw, list) else raw
