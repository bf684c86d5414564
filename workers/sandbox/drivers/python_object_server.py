"""Serves the tests' calls beside the work: looks up names, calls functions, keeps what cannot be sent."""

from __future__ import annotations

TYPE_CHECKING = False  # the module typing takes a third of the start
if TYPE_CHECKING:
    from typing import Any

import builtins

globals()["__builtins__"] = dict(vars(builtins))

import operator
import sys

from python_common import (
    Clock,
    Line,
    TooLong,
    clean,
    encoded,
    missing_package,
    name_of,
)
from python_decode import Decoder
from python_encode import Encoder, NotPlain
from python_inspect import type_name
from python_output import Capture, TooMuchOutput

PRINTED = 256_000
LARGEST = 3_500_000
_BUILTIN = {id(thing): name for name, thing in vars(builtins).items() if isinstance(thing, type)}
_MRO = type.__dict__["__mro__"]
_BASES = type.__dict__["__bases__"]


class Callback:
    """A function of the tests, in the work's process."""

    def __init__(self, keeper: Keeper, number: Any) -> None:
        self._keeper, self._number = keeper, number

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._keeper.call_back(self._number, arguments, named)


class Typed:
    """Takes the place of `sys.stdin` when the tests replaced theirs."""

    encoding = "utf-8"

    def __init__(self, readline: Callback) -> None:
        self.readline = readline

    def __iter__(self) -> Any:
        return iter(self.readline, "")

    def read(self, size: int = -1) -> str:
        return "".join(self)

    def readlines(self) -> list[str]:
        return list(self)

    def isatty(self) -> bool:
        return False


def _isinstance(value: Any, kind: Any) -> bool:
    return isinstance(value, kind)


def _call(thing: Any, *arguments: Any, **named: Any) -> Any:
    return thing(*arguments, **named)


_OPERATIONS = {
    "getattr": getattr,
    "setattr": setattr,
    "delattr": delattr,
    "call": _call,
    "len": len,
    "iter": iter,
    "next": next,
    "str": str,
    "repr": repr,
    "bool": bool,
    "int": int,
    "float": float,
    "index": operator.index,
    "hash": hash,
    "dir": dir,
    "isinstance": _isinstance,
    "issubclass": issubclass,
    "reversed": reversed,
    "contains": operator.contains,
    "enter": lambda thing: type(thing).__enter__(thing),
    "exit": lambda thing, *error: type(thing).__exit__(thing, *error),
    **{
        name: getattr(operator, name)
        for name in (
            "getitem setitem delitem eq ne lt le gt ge add sub mul truediv floordiv mod pow matmul "
            "and_ or_ xor neg pos invert"
        ).split()
    },
}


class Keeper:
    """The objects of the work that the tests hold by number."""

    def __init__(self, space: dict[str, Any], line: Line, say: Any) -> None:
        self.space, self.line, self.say = space, line, say
        self.kept: dict[int, Any] = {}
        self.numbers: dict[int, int] = {}
        self.patched: dict[str, Any] = {}
        self.clock = Clock()
        self.seconds = 5.0

    # --- calls ----------------------------------------------------------------------------------------

    def serve(self, body: Any, seconds: float) -> dict[str, Any]:
        """The answer to one call; every fault of the work is part of it."""
        self.seconds = seconds
        capture = Capture(PRINTED)
        capture.begin()
        try:
            self.clock.start(seconds)
            answer = self._answer(body)
            capture.flush()
            self.clock.stop()
        except TooLong:
            self.clock.stop()
            answer = {"too long": seconds}
        except TooMuchOutput:
            self.clock.stop()
            answer = {"fault": "too much output"}
        answer["out"], answer["err"] = (clean(text, PRINTED) for text in capture.take())
        capture.end()
        if len(encoded(answer)) > LARGEST:
            return {"fault": "the value is too large to be handed over"}
        return answer

    def _answer(self, body: Any) -> dict[str, Any]:
        try:
            if body["op"] == "names":
                return {"ok": self._names()}
            return self._operate(body)
        except (TooLong, TooMuchOutput):
            raise
        except NotPlain as error:
            return {"fault": clean(str(error), 500)}
        except BaseException as error:  # noqa: BLE001  # it is the work's, and the tests want to see it
            missing = missing_package(error)
            if missing:
                self.say({"event": "missing", "package": missing})
            try:
                return {"raised": self._raised(error)}
            except (TooLong, TooMuchOutput):
                raise
            except BaseException:  # noqa: BLE001  # its own methods fail
                return {"fault": f"an error that cannot be handed over: {name_of(type(error))}"}

    def _operate(self, body: dict[str, Any]) -> dict[str, Any]:
        decoder = Decoder(self._special)
        arguments = [decoder.value(wire) for wire in body.get("a", ())]
        named = {str(key): decoder.value(wire) for key, wire in body.get("k", {}).items()}
        if body["op"] == "getattr" and arguments[0] is self:
            return {"ok": self._wire(self._name(arguments[1]))}
        if body["op"] in ("setattr", "delattr") and arguments[0] is self:
            self._patch(*arguments[1:])
            return {"ok": None}
        mutable = {
            place: thing
            for place, thing in [*enumerate(arguments), *named.items()]
            if type(thing) in (list, dict, set, bytearray) or type(thing).__name__ in ("deque", "ndarray")
        }
        before = {place: self._wire(thing) for place, thing in mutable.items()}
        value = self._typing(body, lambda: _OPERATIONS[body["op"]](*arguments, **named))
        answer = {"ok": self._wire(value)}
        after = {place: self._wire(thing) for place, thing in mutable.items()}
        changed = {str(place): wire for place, wire in after.items() if wire != before[place]}
        return {**answer, "changed": changed} if changed else answer

    def _typing(self, body: dict[str, Any], run: Any) -> Any:
        """Runs it; `input` and `sys.stdin` lead to the tests where these replaced theirs."""
        if not body.get("stdin"):
            return run()
        kept = builtins.input, sys.stdin
        builtins.input = Callback(self, "input")
        typed: Any = Typed(Callback(self, "readline"))
        sys.stdin = typed
        try:
            return run()
        finally:
            builtins.input, sys.stdin = kept

    def _names(self) -> list[str]:
        public = self.space.get("__all__")
        names: Any = (
            public if type(public) in (list, tuple) else [n for n in self.space if not str(n).startswith("_")]
        )
        module = type(sys)
        found = [n for n in names if type(n) is str and not isinstance(self.space.get(n), module)]
        return [clean(name, 200) for name in found[:5000]]

    def _patch(self, name: str, *value: Any) -> None:
        """Tests delete what they put in a name's place: then the work's own is there again."""
        if value:
            if name in self.space:
                self.patched.setdefault(name, self.space[name])
            self.space[name] = value[0]
        elif name in self.patched:
            self.space[name] = self.patched.pop(name)
        else:
            del self.space[name]

    def _name(self, name: str) -> Any:
        if name in self.space:
            return self.space[name]
        raise AttributeError(f"the work has no {name!r}")

    # --- values ---------------------------------------------------------------------------------------

    def _wire(self, value: Any) -> Any:
        return Encoder(self._handle).wire(value)

    def _handle(self, value: Any) -> Any:
        if type(value) is Callback:
            return {"t": "callback", "id": value._number}
        if _BUILTIN.get(id(value)):
            return {"t": "builtin", "n": _BUILTIN[id(value)]}
        is_class = isinstance(type(value), type) and type in _MRO.__get__(type(value))
        wire = {"t": "handle", "id": self._keep(value), "n": type_name(value), "c": callable(value)}
        if is_class:
            wire["n"] = name_of(value)
            wire["class"] = True
            if BaseException in _MRO.__get__(value):
                bases = [base for base in _BASES.__get__(value) if BaseException in _MRO.__get__(base)]
                wire["bases"] = [self._handle(base) for base in bases]
        elif BaseException in _MRO.__get__(type(value)):
            return {"t": "error", "v": self._raised(value)}
        return wire

    def _keep(self, value: Any) -> int:
        number = self.numbers.get(id(value))
        if number is None:
            number = len(self.kept) + 1
            self.kept[number] = value
            self.numbers[id(value)] = number
        return number

    def _raised(self, error: BaseException) -> dict[str, Any]:
        kind = type(error)
        arguments = BaseException.__dict__["args"].__get__(error)
        raised = {"c": self._handle(kind), "a": [self._or_text(part) for part in arguments]}
        own = BaseException.__dict__["__dict__"].__get__(error) if kind.__module__ != "builtins" else {}
        raised["d"] = {str(name): self._or_text(part) for name, part in own.items()}
        raised["s"] = clean(str(error), 5000)
        return raised

    def _or_text(self, value: Any) -> Any:
        try:
            return self._wire(value)
        except NotPlain:
            return clean(repr(value), 500)

    def _special(self, wire: dict[str, Any]) -> Any:
        kind = wire.get("t")
        if kind == "module":
            return self
        if kind == "handle":
            return self.kept[int(wire["id"])]
        if kind == "callback":
            return Callback(self, wire["id"])
        if kind == "builtin" and isinstance(vars(builtins).get(wire["n"]), type):
            return vars(builtins)[wire["n"]]
        raise ValueError(f"unknown kind {kind!r}")

    # --- functions of the tests -----------------------------------------------------------------------

    def call_back(self, number: Any, arguments: Any, named: Any) -> Any:
        """Lets the tests' process run its function. It may call the work again meanwhile."""
        self.clock.stop()
        body = {"callback": number, "a": [self._wire(a) for a in arguments]}
        body["k"] = {str(key): self._wire(value) for key, value in named.items()}
        sys.stdout.flush()
        self.say({"event": "remote", "body": body})
        while True:
            message = self.line.read()
            if message is None:
                raise EOFError("the tests have gone")
            reply = message.get("body") or {}
            if reply.get("op") == "resume":
                break
            seconds = float(message.get("seconds", self.seconds))
            self.say({"event": "remote", "body": self.serve(reply, seconds)})
        self.clock.start(self.seconds)
        decoder = Decoder(self._special)
        if "raise" in reply:
            kind = vars(builtins).get(str(reply["raise"]["n"]))
            known = isinstance(kind, type) and issubclass(kind, Exception)
            raise (kind if known else RuntimeError)(str(reply["raise"]["s"]))  # type: ignore[misc]
        return decoder.value(reply.get("value"))
