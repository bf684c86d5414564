"""Compares values of Python or R that came out of an execution, and says the first difference in words.

What counts as the same follows what the languages' own `==` says: `True` and `1` are the same, and so are
`1` and `1.0`; a list and a tuple are not, but either may be an array. In R, whole and other numbers are the
same, factors and text too, and names count only where both sides have them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grading.checks.comparison.numbers import Tolerance, close, number_of
from grading.checks.comparison.tables import difference_of_tables
from grading.checks.comparison.value_formatting import OBJECT, is_own, kind_of, said
from grading.domain.messages import Message, define_message
from grading.execution.values import Shape

MAX_DEPTH = 60
MAX_NODES = 300_000
GAVE = define_message("test.gave", "gave %(got)s, not %(expected)s")
AT = define_message("test.at", "at %(place)s: %(got)s, not %(expected)s")
IT = define_message("test.it", "at %(place)s: it %(difference)s")
TOO_LARGE = define_message("test.too_large", "is too large or too deeply nested to be compared")
LONGER = define_message("test.longer", "is longer than expected")
SHORTER = define_message("test.shorter", "is shorter than expected")
INCOMPARABLE = define_message("test.incomparable", "values of the kind %(kind)s cannot be compared")
ELEMENTS = define_message("test.elements", "has %(got)s elements, not %(expected)s")
OTHER_NAMES = define_message("test.other_names", "has other names than expected")
LACKS = define_message("test.lacks", "has no %(key)s")
UNEXPECTED = define_message("test.unexpected", "has %(key)s, which is not expected")
MAX_PAIRS = 250_000
"""Comparisons when members of sets are paired up."""


@dataclass(frozen=True)
class Verdict:
    """Whether two values are the same; nothing when that cannot be said. `difference` is for instructors."""

    same: bool | None
    difference: Message | None = None


class _Said(Exception):
    def __init__(self, message: Message) -> None:
        super().__init__(message.message)
        self.said = message


class _CannotTell(_Said):
    """Two values cannot be compared."""


class _Different(_Said):
    """The first difference was found."""


def compare(
    expected: Shape, got: Shape, tolerance: Tolerance | None = None, *, ignore_row_order: bool = False
) -> Verdict:
    """Whether a value is the expected one."""
    try:
        _Comparison(tolerance or Tolerance(), ignore_row_order).values(expected, got, "", 0)
    except _Different as found:
        return Verdict(False, found.said)
    except _CannotTell as why:
        return Verdict(None, why.said)
    return Verdict(True)


class _TooLarge(_Different):
    """There is more to compare than is compared."""


class _Comparison:
    def __init__(self, tolerance: Tolerance, ignore_row_order: bool) -> None:
        self.tolerance = tolerance
        self.ignore_row_order = ignore_row_order
        self.left = MAX_NODES

    def values(self, expected: Shape, got: Shape, at: str, depth: int) -> None:
        """Raises _Different or _CannotTell unless both are the same; `at` says where in the whole."""
        self.left -= 1
        if depth > MAX_DEPTH or self.left < 0:
            # what is expected is never that large: a stranger's value must not make a test go away
            raise _TooLarge(_located(at, TOO_LARGE()))
        expected, got = _unwrapped(expected, got)
        if _scalar(expected) and _scalar(got):
            if not self.scalars(expected, got):
                raise self.differ(expected, got, at)
            return
        if "other" in (expected.kind, got.kind):
            return self.others(expected, got, at)
        if expected.kind != got.kind:
            raise self.differ(expected, got, at)
        self.inside(expected, got, at, depth)
        if expected.cut != got.cut:
            raise _Different(_located(at, LONGER() if got.cut else SHORTER()))

    def inside(self, expected: Shape, got: Shape, at: str, depth: int) -> None:
        """Compares two values of the same kind that hold others."""
        if expected.kind == "table":
            found = difference_of_tables(expected, got, self.tolerance, self.ignore_row_order)
            if found:
                raise _Different(_located(at, found))
        elif expected.kind == "list":
            self.lists(expected, got, at, depth)
        elif expected.kind == "set":
            self.sets(expected, got, at, depth)
        elif expected.kind == "map":
            self.maps(expected, got, at, depth)

    def scalars(self, expected: Shape, got: Shape) -> bool:
        kinds = {expected.kind, got.kind}
        if kinds <= {"truth", "number"}:
            if self.tolerance == Tolerance() and _whole(expected) and _whole(got):
                return (
                    expected.text == got.text
                )  # the default tolerance is for rounding, which these have not
            a, b = _number(expected), _number(got)
            return expected.text == got.text if a is None or b is None else close(a, b, self.tolerance)
        if kinds == {"nothing", "number"}:
            # R's NA and NaN
            empty, number = (expected, got) if expected.kind == "nothing" else (got, expected)
            return empty.type == "NA" and number.text.lower() == "nan"
        if kinds == {"nothing"}:
            return (expected.type == "NA") == (got.type == "NA")
        return expected.kind == got.kind and expected.text == got.text and expected.cut == got.cut

    def others(self, expected: Shape, got: Shape, at: str) -> None:
        if expected.kind != got.kind:
            raise self.differ(expected, got, at)
        # only what is expected decides whether a comparison is possible: the other side is a stranger's
        if expected.cut or not expected.text or OBJECT.search(expected.text):
            raise _CannotTell(INCOMPARABLE(kind=expected.type or "unknown"))
        if (expected.type, expected.text) != (got.type, got.text):
            raise self.differ(expected, got, at)

    def lists(self, expected: Shape, got: Shape, at: str, depth: int) -> None:
        if {expected.type, got.type} == {"list", "tuple"}:
            raise self.differ(expected, got, at)
        if expected.names and got.names and set(expected.names) == set(got.names):
            got = _in_order(got, expected.names)
        for n, (a, b) in enumerate(zip(expected.items, got.items, strict=False)):
            self.values(a, b, f"{at}[{n if is_own(expected, 'python') else n + 1}]", depth + 1)
        if len(expected.items) != len(got.items):
            if not at:
                raise self.differ(expected, got, at)
            message = ELEMENTS(got=len(got.items), expected=len(expected.items))
            raise _Different(_located(at, message))
        if expected.names and got.names and expected.names != got.names:
            raise _Different(_located(at, OTHER_NAMES()))

    def sets(self, expected: Shape, got: Shape, at: str, depth: int) -> None:
        missing, extra = self.unpaired(expected.items, got.items, depth)
        if missing or extra:
            raise self.differ(expected, got, at)

    def maps(self, expected: Shape, got: Shape, at: str, depth: int) -> None:
        if len(got.keys) != len(got.items):
            raise self.differ(expected, got, at)
        wanted = dict(zip(map(canonical, expected.keys), expected.items, strict=False))
        have = dict(zip(map(canonical, got.keys), got.items, strict=False))
        names = dict(zip(map(canonical, expected.keys), expected.keys, strict=False))
        for key, value in wanted.items():
            label = said(names[key], 80)
            if key not in have:
                raise _Different(_located(at, LACKS(key=label)))
            self.values(value, have[key], f"{at}[{label}]", depth + 1)
        extra = next((k for k in got.keys if canonical(k) not in wanted), None)
        if extra is not None:
            raise _Different(_located(at, UNEXPECTED(key=said(extra, 80))))

    def unpaired(self, expected: Sequence[Shape], got: Sequence[Shape], depth: int) -> tuple[int, int]:
        """How many members of two sets have no partner."""
        have = {canonical(item): item for item in got}
        rest = [item for item in expected if have.pop(canonical(item), None) is None]
        # partners are one to one: with other numbers of members no pairing is left to try
        if len(rest) != len(have) or len(rest) * len(have) > MAX_PAIRS:
            return len(rest), len(have)
        missing = 0
        for item in rest:
            partner = next((k for k, other in have.items() if self.same(item, other, depth + 1)), None)
            missing += partner is None
            if partner is not None:
                del have[partner]
        return missing, len(have)

    def same(self, expected: Shape, got: Shape, depth: int) -> bool:
        try:
            self.values(expected, got, "", depth)
        except _TooLarge:
            raise
        except _Different:
            return False
        return True

    def differ(self, expected: Shape, got: Shape, at: str) -> _Different:
        if expected.kind != got.kind and not {expected.kind, got.kind} <= {"number", "truth"}:
            mine, other = f"{kind_of(got)} ({said(got, 120)})", f"{kind_of(expected)} ({said(expected, 120)})"
            mine, other = mine.replace(" ()", ""), other.replace(" ()", "")
        else:
            mine, other = said(got, 200), said(expected, 200)
        if mine == other:
            mine, other = f"{mine} ({got.type})", f"{other} ({expected.type})"
        return _Different(AT(place=at, got=mine, expected=other) if at else GAVE(got=mine, expected=other))


def canonical(shape: Shape, depth: int = 0) -> str:
    """A text that is the same for values that are exactly the same."""
    if depth > MAX_DEPTH:
        return "…"
    if shape.kind in ("truth", "number"):
        number = _number(shape)
        if isinstance(number, complex) and not number.imag and number.real == number.real // 1:
            return f"n{int(number.real)}" if abs(number.real) < 1e300 else f"n{number.real}"
        return f"n{number if number is not None else shape.text}"
    if shape.kind == "text":
        return f"t{len(shape.text)}:{shape.text}"
    inner: Callable[[Shape], str] = lambda item: canonical(item, depth + 1)  # noqa: E731
    items = [inner(item) for item in shape.items]
    if shape.kind == "set":
        items.sort()
    family = "tuple" if shape.type == "tuple" else ""
    return f"{shape.kind}{family}({','.join(items)})[{','.join(map(inner, shape.keys))}]{shape.text}"


def _number(shape: Shape) -> int | complex | None:
    if shape.kind == "truth":
        return {"true": 1, "false": 0}.get(shape.text.lower())
    return number_of(shape.text)


def _whole(shape: Shape) -> bool:
    """Whether a value's type holds whole numbers only: Python's, R's and numpy's integers."""
    return shape.type.startswith(("int", "uint"))


def _scalar(shape: Shape) -> bool:
    return shape.kind in ("nothing", "truth", "number", "text")


def _unwrapped(expected: Shape, got: Shape) -> tuple[Shape, Shape]:
    """A vector or array of one element is as good as the element alone."""

    def inner(one: Shape, other: Shape) -> Shape:
        single = one.kind == "list" and len(one.items) == 1 and one.type not in ("list", "tuple")
        return one.items[0] if single and _scalar(other) else one

    return inner(expected, got), inner(got, expected)


def _in_order(shape: Shape, names: tuple[str, ...]) -> Shape:
    """A named list in the order of these names, if every name occurs once."""
    if len(set(shape.names)) != len(shape.names) or len(shape.names) != len(shape.items):
        return shape
    by_name = dict(zip(shape.names, shape.items, strict=True))
    return shape.model_copy(
        update={"items": tuple(by_name[n] for n in names if n in by_name), "names": names}
    )


def _located(at: str, message: Message) -> Message:
    return IT(place=at, difference=message) if at else message
