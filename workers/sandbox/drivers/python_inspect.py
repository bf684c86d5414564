"""Looks at values of the work without asking it: classes by identity, contents by builtin methods."""

from __future__ import annotations

TYPE_CHECKING = False  # the module typing takes a third of the start
if TYPE_CHECKING:
    from typing import Any

import builtins

globals()["__builtins__"] = dict(vars(builtins))

import sys

_MRO = type.__dict__["__mro__"]
_NAME = type.__dict__["__qualname__"]
_MODULE = type.__dict__["__module__"]

_BUILTIN = {
    id(kind): name
    for kind, name in (
        (type(None), "none"),
        (bool, "bool"),
        (int, "int"),
        (float, "float"),
        (complex, "complex"),
        (str, "str"),
        (bytes, "bytes"),
        (bytearray, "bytearray"),
        (list, "list"),
        (tuple, "tuple"),
        (dict, "dict"),
        (set, "set"),
        (frozenset, "frozenset"),
        (type({}.keys()), "view"),
        (type({}.values()), "view"),
        (type({}.items()), "view"),
    )
}
# (module, class) -> what it is called here; only looked for in modules that the work has imported
_KNOWN = {
    ("collections", "deque"): "deque",
    ("decimal", "Decimal"): "Decimal",
    ("fractions", "Fraction"): "Fraction",
    ("datetime", "datetime"): "datetime",
    ("datetime", "date"): "date",
    ("datetime", "time"): "time",
    ("datetime", "timedelta"): "timedelta",
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "generic"): "npscalar",
    ("pandas", "DataFrame"): "DataFrame",
    ("pandas", "Series"): "Series",
    ("pandas", "Index"): "Index",
    ("pandas", "Timestamp"): "datetime",
    ("matplotlib.figure", "Figure"): "picture",
    ("matplotlib.artist", "Artist"): "picture",
    ("PIL.Image", "Image"): "picture",
}


class Kinds:
    """Which of the known classes a value's class comes from; made anew for each answer."""

    def __init__(self) -> None:
        self.table = dict(_BUILTIN)
        for (module, name), kind in _KNOWN.items():
            space = getattr(sys.modules.get(module), "__dict__", None)
            found = space.get(name) if type(space) is dict else None
            if isinstance(found, type):
                self.table[id(found)] = kind

    def of(self, value: Any) -> str:
        """The kind of a value, `other` when it is none of the known."""
        for kind in _MRO.__get__(type(value)):
            found = self.table.get(id(kind))
            if found is not None:
                return found
        return "other"


def type_name(value: Any) -> str:
    """`int`, `numpy.float64`, `Point`: without the module for builtins and the work's own classes."""
    kind = type(value)
    name = str.__str__(_NAME.__get__(kind))
    module = _MODULE.__get__(kind)
    if type(module) is not str or module in ("builtins", "__main__"):
        return name[:200]
    return f"{module.partition('.')[0]}.{name}"[:200]


def number(value: Any, kind: str) -> Any:
    """The exact builtin number below a number or a subclass of it."""
    if kind == "int":
        return int.__int__(value)
    if kind == "float":
        return float.__float__(value)
    if kind == "complex":
        return complex.__add__(value, 0j) if type(value) is not complex else value
    return value


def items(value: Any, kind: str) -> Any:
    """An iterator over the contents, by the builtin's own method."""
    if kind == "list":
        return list.__iter__(value)
    if kind == "tuple":
        return tuple.__iter__(value)
    if kind == "set":
        return set.__iter__(value)
    if kind == "frozenset":
        return frozenset.__iter__(value)
    return iter(value)


def pairs(value: Any) -> Any:
    """Keys and values of a dict or a subclass of it."""
    return iter(dict.items(value))
