"""Values of Python and R as people read them."""

from __future__ import annotations

import re
from typing import Literal

from grading.execution.values import Shape

OBJECT = re.compile(r"0x[0-9a-fA-F]{4,}|^<(?!\w+\.\w+: ).*>$", re.DOTALL)
"""A printed form that does not tell what is in it: `<function f>`, `<Point object>`."""
MAX_TEXT = 500
_R_TYPES = frozenset(
    "NULL NA logical integer numeric double character complex factor data.frame tbl_df tbl table matrix Date"
    " POSIXct POSIXt difftime integer64 raw array".split()
)
_KINDS = {
    "nothing": "nothing",
    "truth": "a truth value",
    "number": "a number",
    "text": "text",
    "list": "a list",
    "set": "a set",
    "map": "a dictionary",
    "table": "a table",
    "picture": "a picture",
    "other": "something else",
}


def said(shape: Shape, at_most: int = MAX_TEXT) -> str:
    """A value as its language writes it, shortened."""
    text = _written(shape, at_most, 0)
    return text if len(text) <= at_most else text[: at_most - 1] + "…"


def kind_of(shape: Shape) -> str:
    """What sort of value it is, in plain words."""
    if shape.kind == "list" and shape.type:
        return f"a {shape.type}" if shape.type in ("list", "tuple", "factor") else "a list or vector"
    if shape.kind == "other":
        return f"a {shape.type}" if shape.type else "something else"
    return _KINDS[shape.kind]


def is_own(shape: Shape, language: Literal["python", "r"]) -> bool:
    """Whether a value is of this language, as far as its type tells."""
    is_r = shape.type in _R_TYPES or any(item.type in _R_TYPES for item in shape.items[:1])
    return is_r if language == "r" else not is_r


def _written(shape: Shape, room: int, depth: int) -> str:
    if shape.kind == "text":
        return repr(shape.text[: room + 1])
    if shape.kind == "truth":
        true = shape.text.lower() == "true"
        return str(true).upper() if is_own(shape, "r") else str(true)
    if shape.kind == "nothing":
        return shape.type if shape.type in ("NULL", "NA") else "None"
    if shape.kind == "table":
        rows = max((len(c) for c in shape.columns), default=0)
        shown = ", ".join(shape.names[:12]) + (", …" if len(shape.names) > 12 else "")
        return f"a table of {rows} rows and {len(shape.names)} columns ({shown})"
    if shape.kind == "picture":
        return "a picture"
    if shape.kind in ("number", "other") or depth > 6:
        return shape.text[: room + 1] or (f"a {shape.type}" if shape.type else "…")
    return _gathered(shape, room, depth)


def _gathered(shape: Shape, room: int, depth: int) -> str:
    """Lists, sets and maps with their brackets, not longer than there is room for."""
    parts: list[str] = []
    length = 0
    for n, item in enumerate(shape.items):
        text = _written(item, max(0, room - length), depth + 1)
        if n < len(shape.keys) and shape.kind == "map":
            text = f"{_written(shape.keys[n], room, depth + 1)}: {text}"
        elif n < len(shape.names) and shape.names[n]:
            text = f"{shape.names[n]} = {text}"
        parts.append(text)
        length += len(text) + 2
        if length > room:
            break
    if shape.cut or len(parts) < len(shape.items):
        parts.append("…")
    inside = ", ".join(parts)
    if shape.kind == "set" and not parts:
        return "set()"
    if shape.kind in ("set", "map"):
        return f"{{{inside}}}" if is_own(shape, "python") else f"list({inside})"
    if shape.type == "tuple":
        return f"({inside},)" if len(parts) == 1 else f"({inside})"
    return f"c({inside})" if is_own(shape, "r") else f"[{inside}]"
