"""Turns what the other side sent back into values, without trusting it: data of known classes only."""

from __future__ import annotations

TYPE_CHECKING = False  # the module typing takes a third of the start
if TYPE_CHECKING:
    from typing import Any

import sys

from python_encode import NotPlain

ARRAY = 64 << 20


class Decoder:
    """Makes values of what the other side sent; `special` gets handles and other kinds of its own."""

    def __init__(self, special: Any) -> None:
        self.special = special

    def value(self, wire: Any) -> Any:
        """The value. Raises NotPlain for what no encoder makes."""
        if isinstance(wire, list):
            return [self.value(item) for item in wire]
        if not isinstance(wire, dict):
            return wire
        kind = wire.get("t")
        # letters only: no method that every object has
        method = getattr(self, f"_{kind}", None) if isinstance(kind, str) and kind.isalpha() else None
        try:
            return self.special(wire) if method is None else method(wire)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise NotPlain(f"a value that cannot be read came back: {error}") from None

    def _int(self, wire: Any) -> Any:
        return int(wire["v"], 16)

    def _float(self, wire: Any) -> Any:
        return float(wire["v"])

    def _str(self, wire: Any) -> Any:
        return bytes.fromhex(wire["v"]).decode("utf-16-le", "surrogatepass")

    def _tuple(self, wire: Any) -> Any:
        return tuple(self.value(wire["v"]))

    def _named(self, wire: Any) -> Any:
        return _named_tuple(str(wire["n"]), tuple(wire["f"]))(*self.value(wire["v"]))

    def _set(self, wire: Any) -> Any:
        return set(self.value(wire["v"]))

    def _frozenset(self, wire: Any) -> Any:
        return frozenset(self.value(wire["v"]))

    def _deque(self, wire: Any) -> Any:
        from collections import deque

        return deque(self.value(wire["v"]))

    def _view(self, wire: Any) -> Any:
        return self.value(wire["v"])

    def _dict(self, wire: Any) -> Any:
        plain = {self.value(key): self.value(item) for key, item in wire["v"]}
        if wire.get("n") in ("Counter", "OrderedDict"):
            import collections

            return getattr(collections, wire["n"])(plain)
        return plain

    def _complex(self, wire: Any) -> Any:
        return complex(float(wire["v"][0]), float(wire["v"][1]))

    def _bytes(self, wire: Any) -> Any:
        return bytes.fromhex(wire["v"])

    def _bytearray(self, wire: Any) -> Any:
        return bytearray.fromhex(wire["v"])

    def _moment(self, wire: Any) -> Any:
        import datetime

        return getattr(datetime, wire["t"]).fromisoformat(wire["v"])

    _datetime = _date = _time = _moment

    def _timedelta(self, wire: Any) -> Any:
        from datetime import timedelta

        return timedelta(*wire["v"])

    def _Decimal(self, wire: Any) -> Any:
        from decimal import Decimal

        return Decimal(wire["v"])

    def _Fraction(self, wire: Any) -> Any:
        from fractions import Fraction

        return Fraction(int(wire["v"][0], 16), int(wire["v"][1], 16))

    def _npscalar(self, wire: Any) -> Any:
        return _dtype(wire["d"], 1).type(self.value(wire["v"]))

    def _ndarray(self, wire: Any) -> Any:
        import numpy

        cells = self.value(wire["v"])
        if wire["d"] == "O":
            flat = numpy.empty(len(cells), dtype=object)
            flat[:] = cells
            return flat.reshape(wire["s"])
        dtype = _dtype(wire["d"], len(cells))
        between = "int64" if dtype.kind in "mM" else dtype
        return numpy.array(cells, dtype=between).astype(dtype).reshape(wire["s"])

    def _missing(self, wire: Any) -> Any:
        return getattr(sys.modules.get("pandas"), "NA", None)

    def _series(self, cells: Any, dtype: str, wire: Any) -> Any:
        import pandas

        values = [None if cell is pandas.NA else cell for cell in self.value(cells)]
        series = pandas.Series(values, dtype=object, index=self._labels(wire))
        return series if dtype == "object" else series.astype(dtype)

    def _labels(self, wire: Any) -> Any:
        import pandas

        if "i" not in wire:
            return None
        names = self.value(wire["in"])
        labels = self.value(wire["i"])
        if len(names) > 1:
            return pandas.MultiIndex.from_tuples(labels, names=names)
        return pandas.Index(labels, name=names[0])

    def _Series(self, wire: Any) -> Any:
        return self._series(wire["v"], wire["d"], wire).rename(self.value(wire["n"]))

    def _DataFrame(self, wire: Any) -> Any:
        import pandas

        columns = [self._series(cells, dtype, wire) for _, dtype, cells in wire["c"]]
        labels = [self.value(label) for label, _, _ in wire["c"]]
        if not columns:
            return pandas.DataFrame(index=self._labels(wire))
        frame = pandas.concat(columns, axis=1)
        frame.columns = pandas.Index(labels)
        return frame

    def _Index(self, wire: Any) -> Any:
        import pandas

        return pandas.Index(self.value(wire["v"]), name=self.value(wire["n"]))


def _dtype(name: Any, cells: int) -> Any:
    """A type of numpy's in which so many cells are no more than ARRAY bytes: texts may be of any length."""
    import numpy

    dtype = numpy.dtype(name)
    if dtype.itemsize * cells > ARRAY:
        raise ValueError("the array is too large")
    return dtype


_named: dict[Any, Any] = {}


def _named_tuple(name: str, fields: tuple[str, ...]) -> Any:
    """The same class for the same name and fields, so that values can be compared."""
    if (name, fields) not in _named:
        from collections import namedtuple

        _named[name, fields] = namedtuple(name, fields)
    return _named[name, fields]
