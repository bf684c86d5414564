"""Values between the tests' process and the work's, as JSON that is read without trusting the sender.

None, truth, text, small integers and finite floats are themselves, a list is a list; anything else is
`{"t": kind, …}`. What has no plain form is a handle of the side that owns it.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the module typing takes a third of the start
if TYPE_CHECKING:
    from typing import Any

import builtins

globals()["__builtins__"] = dict(vars(builtins))


from python_inspect import Kinds, items, number, pairs

DEPTH = 100
NODES = 500_000
_EXACT = 2**53
_TIMES = ("datetime", "date", "time")
_COLLECTIONS = {"list": "list", "tuple": "tuple", "set": "set", "frozenset": "frozenset"}


class NotPlain(TypeError):
    """A value that cannot be handed over."""


class Encoder:
    """Makes wire values; `handle` is called with what has no plain form and gives its wire value."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.kinds = Kinds()
        self.nodes = 0

    def wire(self, value: Any, depth: int = 0) -> Any:
        """The wire value. Raises NotPlain for what is too deep or too large."""
        self.nodes += 1
        if depth > DEPTH or self.nodes > NODES:
            raise NotPlain("the value is too deep or too large to be handed over")
        kind = self.kinds.of(value)
        if kind in ("none", "bool"):
            return value
        if kind == "int":
            plain = int.__int__(value)
            return plain if -_EXACT <= plain <= _EXACT else {"t": "int", "v": hex(plain)}
        if kind == "float":
            real = float.__float__(value)
            return real if real - real == 0 else {"t": "float", "v": repr(real)}
        if kind == "str":
            return _text(str.__str__(value))
        if self._has_own_methods(value, kind):
            return self.handle(value)
        method = getattr(self, f"_{kind}", None)
        return self.handle(value) if method is None else method(value, depth + 1)

    def _has_own_methods(self, value: Any, kind: str) -> bool:
        """A list, dict or set that the work gave methods, such as a Stack, is an object, not a value."""
        if kind not in ("list", "dict", "set") or type(value) in (list, dict, set):
            return False
        own = type.__dict__["__dict__"].__get__(type(value))
        module = type.__dict__["__module__"].__get__(type(value))
        known = type(module) is str and module in ("collections", "builtins")
        return not known and any(
            callable(part) and not str(name).startswith("__") for name, part in own.items()
        )

    def _all(self, values: Any, depth: int) -> list[Any]:
        return [self.wire(item, depth) for item in values]

    def _list(self, value: Any, depth: int) -> Any:
        return self._all(items(value, "list"), depth)

    def _tuple(self, value: Any, depth: int) -> Any:
        wired = self._all(items(value, "tuple"), depth)
        fields = type.__dict__["__dict__"].__get__(type(value)).get("_fields")
        if type(fields) is tuple and len(fields) == len(wired) and all(type(f) is str for f in fields):
            return {"t": "named", "n": type(value).__name__, "f": list(fields), "v": wired}
        return {"t": "tuple", "v": wired}

    def _set(self, value: Any, depth: int) -> Any:
        return {"t": "set", "v": self._all(items(value, "set"), depth)}

    def _frozenset(self, value: Any, depth: int) -> Any:
        return {"t": "frozenset", "v": self._all(items(value, "frozenset"), depth)}

    def _deque(self, value: Any, depth: int) -> Any:
        return {"t": "deque", "v": self._all(value, depth)}

    def _view(self, value: Any, depth: int) -> Any:
        return {"t": "view", "v": self._all(value, depth)}

    def _dict(self, value: Any, depth: int) -> Any:
        wired = [[self.wire(key, depth), self.wire(item, depth)] for key, item in pairs(value)]
        name = type(value).__name__
        return {"t": "dict", "v": wired, **({"n": name} if name in ("Counter", "OrderedDict") else {})}

    def _complex(self, value: Any, depth: int) -> Any:
        plain = number(value, "complex")
        return {"t": "complex", "v": [repr(plain.real), repr(plain.imag)]}

    def _bytes(self, value: Any, depth: int) -> Any:
        return {"t": "bytes", "v": bytes.hex(value)}

    def _bytearray(self, value: Any, depth: int) -> Any:
        return {"t": "bytearray", "v": bytearray.hex(value)}

    def _datetime(self, value: Any, depth: int) -> Any:
        return {"t": "datetime", "v": str(value.isoformat())}

    def _date(self, value: Any, depth: int) -> Any:
        return {"t": "date", "v": str(value.isoformat())}

    def _time(self, value: Any, depth: int) -> Any:
        return {"t": "time", "v": str(value.isoformat())}

    def _timedelta(self, value: Any, depth: int) -> Any:
        return {"t": "timedelta", "v": [int(value.days), int(value.seconds), int(value.microseconds)]}

    def _Decimal(self, value: Any, depth: int) -> Any:
        return {"t": "Decimal", "v": str(value)}

    def _Fraction(self, value: Any, depth: int) -> Any:
        return {"t": "Fraction", "v": [hex(int(value.numerator)), hex(int(value.denominator))]}

    def _npscalar(self, value: Any, depth: int) -> Any:
        if value.dtype.kind in "biufcU":
            return {"t": "npscalar", "d": value.dtype.str, "v": self.wire(value.item(), depth)}
        return self._ndarray(value, depth)

    def _ndarray(self, value: Any, depth: int) -> Any:
        import numpy

        plain = numpy.asarray(value)
        kind = plain.dtype.kind
        if plain.size > NODES - self.nodes or kind not in "biufcUmMO":
            raise NotPlain(f"an array of shape {plain.shape} and type {plain.dtype} cannot be handed over")
        flat = plain.astype("int64") if kind in "mM" else plain
        cells = self._all(flat.ravel().tolist(), depth)
        return {
            "t": "ndarray",
            "d": "O" if kind == "O" else plain.dtype.str,
            "s": list(plain.shape),
            "v": cells,
        }

    def _Series(self, value: Any, depth: int) -> Any:
        cells = {"d": str(value.dtype), "v": self._column(value, depth)}
        return {"t": "Series", "n": self.wire(value.name, depth), **cells, **self._index(value.index, depth)}

    def _DataFrame(self, value: Any, depth: int) -> Any:
        columns = []
        for place, label in enumerate(value.columns):
            column = value.iloc[:, place]
            columns.append([self.wire(label, depth), str(column.dtype), self._column(column, depth)])
        return {"t": "DataFrame", "c": columns, **self._index(value.index, depth)}

    def _Index(self, value: Any, depth: int) -> Any:
        return {"t": "Index", "n": self.wire(value.name, depth), "v": self._column(value, depth)}

    def _index(self, index: Any, depth: int) -> dict[str, Any]:
        if type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1:
            return {}
        return {"i": self._column(index, depth), "in": [self.wire(name, depth) for name in index.names]}

    def _column(self, column: Any, depth: int) -> list[Any]:
        missing = {"t": "missing"}
        unknown = ("NaTType", "NAType")
        return [missing if type(c).__name__ in unknown else self.wire(c, depth) for c in column.tolist()]


def _text(plain: str) -> Any:
    try:
        plain.encode("utf-8")
    except UnicodeEncodeError:
        return {"t": "str", "v": plain.encode("utf-16-le", "surrogatepass").hex()}
    return plain
