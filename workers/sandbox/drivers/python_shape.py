"""Turns a value of the work into a `Shape` (grading/execution/values.py), bounded and of JSON values only."""

from __future__ import annotations

TYPE_CHECKING = False  # the module typing takes a third of the start
if TYPE_CHECKING:
    from typing import Any

import builtins

globals()["__builtins__"] = dict(vars(builtins))

import re
import sys

from python_common import clean
from python_inspect import Kinds, items, number, pairs, type_name

NODES = 20_000
CELLS = 100_000
DEPTH = 30
REPR = 10_000
DIGITS = 120_000
"""Bits of the largest integer that is written out in full."""
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_numbers = ("int", "float", "complex")


class Shaper:
    """One value's way out."""

    def __init__(self) -> None:
        self.kinds = Kinds()
        self.nodes = 0

    def shape(self, value: Any, depth: int = 0) -> dict[str, Any]:
        """The shape as JSON values; `cut` is set wherever something was left out."""
        self.nodes += 1
        kind = self.kinds.of(value)
        if kind == "none":
            return {"kind": "nothing", "type": "NoneType"}
        name = type_name(value)
        if kind == "bool":
            return {"kind": "truth", "type": name, "text": "true" if value is True else "false"}
        if kind in _numbers:
            return self._number(number(value, kind), name)
        if kind == "str":
            return self._text("text", name, str.__str__(value))
        if depth >= DEPTH and kind not in ("picture", "other"):
            return {"kind": "other", "type": name, "cut": True}
        method: Any = getattr(self, f"_{kind}", self._other)
        return dict(method(value, name, depth))

    def _text(self, kind: str, name: str, text: str) -> dict[str, Any]:
        shape: dict[str, Any] = {"kind": kind, "type": name, "text": clean(text)}
        if len(text) > len(shape["text"]):
            shape["cut"] = True
        return shape

    def _number(self, value: Any, name: str) -> dict[str, Any]:
        shape: dict[str, Any] = {"kind": "number", "type": name}
        if type(value) is int and value.bit_length() > DIGITS:
            return {**shape, "text": f"{hex(value)[:1000]}", "cut": True}
        if type(value) is int and hasattr(sys, "set_int_max_str_digits"):
            sys.set_int_max_str_digits(0)
        text = repr(value)
        return {**shape, "text": text[1:-1] if text.startswith("(") else text}

    def _list(self, value: Any, name: str, depth: int, kind: str = "list") -> dict[str, Any]:
        found: list[Any] = []
        shape: dict[str, Any] = {"kind": "list", "type": name, "items": found}
        for item in items(value, kind):
            if self.nodes >= NODES:
                shape["cut"] = True
                break
            found.append(self.shape(item, depth + 1))
        return shape

    def _tuple(self, value: Any, name: str, depth: int) -> dict[str, Any]:
        return self._list(value, name, depth, "tuple")

    def _deque(self, value: Any, name: str, depth: int) -> dict[str, Any]:
        return self._list(value, name, depth, "deque")

    _view = _deque

    def _set(self, value: Any, name: str, depth: int) -> dict[str, Any]:
        return {**self._list(value, name, depth, "set"), "kind": "set"}

    def _frozenset(self, value: Any, name: str, depth: int) -> dict[str, Any]:
        return {**self._list(value, name, depth, "frozenset"), "kind": "set"}

    def _dict(self, value: Any, name: str, depth: int) -> dict[str, Any]:
        keys: list[Any] = []
        values: list[Any] = []
        shape: dict[str, Any] = {"kind": "map", "type": name, "keys": keys, "items": values}
        for key, item in pairs(value):
            if self.nodes >= NODES:
                shape["cut"] = True
                break
            keys.append(self.shape(key, depth + 1))
            values.append(self.shape(item, depth + 1))
        return shape

    def _bytes(self, value: Any, name: str, depth: int) -> dict[str, Any]:
        plain = bytes(bytes.__getitem__(value, slice(0, REPR)))
        shape = self._text("other", name, repr(plain))
        return {**shape, "cut": True} if bytes.__len__(value) > REPR else shape

    def _Decimal(self, value: Any, name: str, depth: int) -> dict[str, Any]:
        return self._text("number", name, str(value)[:1000].replace("NaN", "nan").replace("Infinity", "inf"))

    def _Fraction(self, value: Any, name: str, depth: int) -> dict[str, Any]:
        return self._text("number", name, str(value)[:DIGITS])

    def _datetime(self, value: Any, name: str, depth: int) -> dict[str, Any]:
        return self._text("other", name, value.isoformat())

    _date = _datetime
    _time = _datetime

    def _timedelta(self, value: Any, name: str, depth: int) -> dict[str, Any]:
        return self._text("other", name, str(value))

    def _picture(self, value: Any, name: str, depth: int) -> dict[str, Any]:
        return {"kind": "picture", "type": name}

    def _npscalar(self, value: Any, name: str, depth: int) -> dict[str, Any]:
        if value.dtype.kind in "biufcU":
            return {**self.shape(value.item(), depth + 1), "type": name}
        return self._text("other", name, str(value))

    def _ndarray(self, value: Any, name: str, depth: int) -> dict[str, Any]:
        import numpy

        plain = numpy.asarray(value)
        if plain.size > NODES:
            return {"kind": "other", "type": name, "text": f"an array of shape {plain.shape}", "cut": True}
        if plain.dtype.kind in "mM":
            plain = plain.astype(str)
        nested = plain.tolist()
        return {**self.shape(nested, depth + 1), "type": name}

    def _DataFrame(self, value: Any, name: str, depth: int) -> dict[str, Any]:
        rows, width = value.shape
        most = max(1, CELLS // max(width, 1))
        names, columns = self._index(value.index, most)
        for place, label in enumerate(value.columns):
            names.append(self._label(label))
            columns.append(self._column(value.iloc[:most, place]))
        shape = {"kind": "table", "type": name, "names": names, "columns": columns}
        return {**shape, "cut": True} if rows > most else shape

    def _Series(self, value: Any, name: str, depth: int) -> dict[str, Any]:
        shape = self._list(value.array, name, depth, "array")
        labels, columns = self._index(value.index, NODES)
        if labels:
            shape["names"] = [", ".join(str(cell) for cell in row) for row in zip(*columns)]  # noqa: B905  # `strict` is newer than 3.9
        return shape

    def _Index(self, value: Any, name: str, depth: int) -> dict[str, Any]:
        return self._list(value.array, name, depth, "array")

    def _index(self, index: Any, most: int) -> tuple[list[str], list[Any]]:
        """The row names as columns; none when they are 0, 1, 2, …"""
        if type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1:
            return [], []
        levels = range(index.nlevels)
        names = ["(index)" if level == 0 else f"(index {level + 1})" for level in levels]
        return names, [self._column(index.get_level_values(level)[:most]) for level in levels]

    def _label(self, label: Any) -> str:
        if type(label) is tuple:
            return ", ".join(clean(str(part), 200) for part in label)
        return str(clean(str(label), 200))

    def _column(self, column: Any) -> list[Any]:
        return [self._cell(cell) for cell in column.tolist()]

    def _cell(self, cell: Any) -> Any:
        kind = self.kinds.of(cell)
        if kind == "npscalar" and cell.dtype.kind in "biuf":
            cell = cell.item()
            kind = self.kinds.of(cell)
        if kind in ("none", "bool"):
            return cell
        if kind == "int":
            plain = int.__int__(cell)
            return plain if abs(plain) <= 2**53 else str(plain)
        if kind == "float":
            plain_float = float.__float__(cell)
            if plain_float != plain_float:
                return None
            return plain_float if abs(plain_float) != float("inf") else repr(plain_float)
        if kind == "str":
            return str(clean(cell, REPR))
        if type(cell).__name__ in ("NaTType", "NAType"):
            return None
        return clean(str(cell), 500)

    def _other(self, value: Any, name: str, depth: int) -> dict[str, Any]:
        text = str.__str__(repr(value))
        shape = self._text("other", name, _ADDRESS.sub("", text[:REPR]))
        return {**shape, "cut": True} if len(text) > REPR else shape
