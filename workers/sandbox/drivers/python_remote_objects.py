"""The work as the tests see it: a module whose functions and objects live in another sandbox.

Values arrive as plain values of this process. An object stays where it is, held here by number; it never
equals a plain value and answers no arithmetic or order with one, so that a class of the work cannot pass for
a result that it is not.
"""

from __future__ import annotations

import types
from typing import Any

from python_common import TooLong
from python_encode import NotPlain

# None is an Exception: `assertRaises(Exception)` must not be content with a work that hangs or has ended.


class WorkTimeout(BaseException):
    """A call of the work took too long."""


class WorkFault(BaseException):
    """A call of the work gave nothing that can be used."""


class WorkGone(BaseException):
    """The work had ended before this test."""


_VERDICTS = ("equals", "issubset", "issuperset", "isdisjoint")
"""Methods that compare: an object that is asked them about a plain value could say what is wished for."""


def why(error: BaseException) -> tuple[str, str]:
    """(state, message) of a test that raised."""
    if isinstance(error, (TooLong, TimeoutError, WorkTimeout)):
        return "too long", str(error) or "the test took too long"
    text = str(error)
    if isinstance(error, WorkGone):
        return "not reached", text
    if isinstance(error, AssertionError):
        return "failed", text or "an assertion failed"
    return "error", f"{type(error).__name__}: {text}" if text else type(error).__name__


class WorkModule(types.ModuleType):
    """`import basket`."""

    __test__ = False

    def __init__(self, name: str, remote: Any, taken: frozenset[str]) -> None:
        super().__init__(name)
        self.__dict__["_remote"] = remote
        self.__dict__["_taken"] = taken
        self.__dict__["__path__"] = []

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            # names that the tests use themselves stay theirs
            names = self._remote.operate("names")
            return [
                n for n in names if isinstance(n, str) and n not in self._taken and not n.startswith("__")
            ]
        if name.startswith("__") and name != "__doc__":
            raise AttributeError(name)
        value = self._remote.operate("getattr", self, name)
        if type(value) is WorkObject and not name[:1].isupper():
            # what a class makes that stands in a function's place is a result, not an object to be tested
            object.__setattr__(value, "_callable", False)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
            return
        try:
            self._remote.operate("setattr", self, name, value)
        except NotPlain:
            raise TypeError(
                f"{self.__name__}.{name} cannot be patched with this {type(value).__name__}: the work runs "
                "in a box of its own; functions and plain values can take its place"
            ) from None

    def __delattr__(self, name: str) -> None:
        self._remote.operate("delattr", self, name)

    def __dir__(self) -> list[str]:
        return list(self._remote.operate("names"))


class WorkObject:
    """A function, class, object or module of the work."""

    __slots__ = ("_callable", "_made", "_name", "_number", "_remote")
    __test__ = False
    __array_ufunc__ = None

    def __init__(self, remote: Any, number: int, wire: dict[str, Any]) -> None:
        set_ = object.__setattr__
        set_(self, "_remote", remote)
        set_(self, "_number", number)
        set_(self, "_name", str(wire.get("n")))
        set_(self, "_callable", bool(wire.get("class")))
        set_(self, "_made", False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in (
            "__name__",
            "__doc__",
            "__dict__",
            "__defaults__",
            "__qualname__",
        ):
            raise AttributeError(name)
        value = self._remote.operate("getattr", self, name)
        return _between_objects(value, name) if name in _VERDICTS and callable(value) else value

    def __setattr__(self, name: str, value: Any) -> None:
        self._remote.operate("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        self._remote.operate("delattr", self, name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        value = self._remote.operate("call", self, *arguments, **named)
        if self._callable and type(value) is WorkObject:
            object.__setattr__(value, "_made", True)
        return value

    def __mro_entries__(self, bases: Any) -> Any:
        raise TypeError(f"tests cannot derive a class from {self._name}: the work runs in a box of its own")

    def __instancecheck__(self, value: Any) -> bool:
        return type(value) is WorkObject and self._remote.operate("isinstance", value, self) is True

    def __subclasscheck__(self, value: Any) -> bool:
        return type(value) is WorkObject and self._remote.operate("issubclass", value, self) is True

    def __eq__(self, other: Any) -> bool:
        if type(other) is not WorkObject:
            return False
        return self._number == other._number or self._remote.operate("eq", self, other) is True

    def __ne__(self, other: Any) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(("work", self._number)) if self._callable else int(self._remote.operate("hash", self))

    def __contains__(self, item: Any) -> bool:
        if self._made or type(item) is WorkObject:
            return self._remote.operate("contains", self, item) is True
        return any(item is own or item == own for own in self)

    def __iter__(self) -> Any:
        return WorkIterator(self._remote, self._remote.operate("iter", self))

    def __next__(self) -> Any:
        return self._remote.operate("next", self)

    def __exit__(self, *error: Any) -> None:
        self._remote.operate("exit", self, None, None, None)


def _between_objects(method: Any, name: str) -> Any:
    def compare(*arguments: Any) -> Any:
        if any(type(argument) is not WorkObject for argument in arguments):
            raise WorkFault(f"an object of the work cannot tell by {name}() whether it is a plain value")
        return method(*arguments)

    return compare


class WorkIterator:
    """Items of the work, one call each."""

    def __init__(self, remote: Any, iterator: Any) -> None:
        self.remote, self.iterator, self.left = remote, iterator, 100_000

    def __iter__(self) -> WorkIterator:
        return self

    def __next__(self) -> Any:
        self.left -= 1
        if self.left < 0:
            raise WorkFault("more than 100 000 items")
        return self.remote.operate("next", self.iterator)


def _forward(name: str) -> Any:
    def method(self: WorkObject, *arguments: Any) -> Any:
        return self._remote.operate(name, self, *arguments)

    return method


def _with_another(name: str) -> Any:
    def method(self: WorkObject, other: Any) -> Any:
        if type(other) is not WorkObject:
            return NotImplemented
        return self._remote.operate(name, self, other)

    return method


def _arithmetic(name: str) -> Any:
    """With a plain value only as long as the result is an object again: `vector * 2`."""

    def method(self: WorkObject, other: Any) -> Any:
        value = self._remote.operate(name, self, other)
        if type(other) is not WorkObject and type(value) is not WorkObject:
            return NotImplemented
        return value

    return method


for _name in (
    "len",
    "str",
    "repr",
    "bool",
    "int",
    "float",
    "index",
    "getitem",
    "setitem",
    "delitem",
    "reversed",
):
    setattr(WorkObject, f"__{_name}__", _forward(_name))
for _name in ("enter", "neg", "pos", "invert"):
    setattr(WorkObject, f"__{_name}__", _forward(_name))
for _name in ("lt", "le", "gt", "ge"):
    setattr(WorkObject, f"__{_name}__", _with_another(_name))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor"):
    setattr(WorkObject, f"__{_name.strip('_')}__", _arithmetic(_name))
