"""The tests' way to the work: operations as messages, values and exceptions as those of this process."""

from __future__ import annotations

import builtins
import io
import sys
from typing import Any

from python_decode import Decoder
from python_encode import Encoder, NotPlain
from python_remote_objects import WorkFault, WorkGone, WorkModule, WorkObject, WorkTimeout

_NEVER = (KeyboardInterrupt, GeneratorExit)


class Remote:
    """The way to the work's process."""

    def __init__(self, exchange: Any) -> None:
        self.exchange = exchange
        self.objects: dict[int, Any] = {}
        self.functions: list[Any] = []
        self.input = builtins.input
        self.stdin = sys.stdin
        self.gone = False

    def operate(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Runs an operation there; its value, or its exception raised here."""
        body: dict[str, Any] = {"op": name, "a": [self.wire(a) for a in arguments]}
        body["k"] = {key: self.wire(value) for key, value in named.items()}
        typed = sys.stdin is not self.stdin and isinstance(sys.stdin, io.TextIOBase)
        if typed or builtins.input is not self.input:
            body["stdin"] = True
        reply = self.exchange(body)
        while "callback" in reply:
            reply = self.exchange(self._resume(reply))
        for stream, text in ((sys.stdout, reply.get("out")), (sys.stderr, reply.get("err"))):
            if text:
                stream.write(text)
        if "too long" in reply:
            raise WorkTimeout(f"took longer than {reply['too long']:g} s")
        if "gone" in reply:
            if self.gone:
                raise WorkGone("the work had ended before")
            self.gone = True
            raise WorkFault("the work ended itself, or was ended because of a limit")
        if "fault" in reply:
            raise WorkFault(str(reply["fault"])[:500])
        if "raised" in reply:
            raise self.error(reply["raised"])
        for place, wire in (reply.get("changed") or {}).items():
            _change(named[place] if place in named else arguments[int(place)], self.value(wire))
        return self.value(reply.get("ok"))

    def _resume(self, reply: dict[str, Any]) -> dict[str, Any]:
        try:
            function = self._function(reply["callback"])
            named = {key: self.value(wire) for key, wire in reply["k"].items()}
            value = function(*[self.value(wire) for wire in reply["a"]], **named)
            return {"op": "resume", "value": self.wire(value)}
        except (Exception, WorkFault, WorkTimeout) as error:  # noqa: BLE001  # it goes on in the work, as in a call without a border
            return {"op": "resume", "raise": {"n": type(error).__name__, "s": str(error)[:2000]}}

    def _function(self, number: Any) -> Any:
        if number == "input":
            return builtins.input
        if number == "readline":
            return sys.stdin.readline
        return self.functions[int(number)]

    # --- values ---------------------------------------------------------------------------------------

    def wire(self, value: Any) -> Any:
        return Encoder(self._special).wire(value)

    def _special(self, value: Any) -> Any:
        kind = type(value)
        if kind is WorkObject:
            return {"t": "handle", "id": value._number}
        if kind is WorkModule:
            return {"t": "module"}
        if isinstance(value, type) and "_work_number" in value.__dict__:
            return {"t": "handle", "id": value.__dict__["_work_number"]}
        name = str(kind.__name__ if not isinstance(value, type) else value.__name__)
        if isinstance(value, type) and vars(builtins).get(name) is value:
            return {"t": "builtin", "n": name}
        if callable(value):
            self.functions.append(value)
            return {"t": "callback", "id": len(self.functions) - 1}
        raise NotPlain(f"a {name} of the tests cannot be handed to the work, which runs in a box of its own")

    def value(self, wire: Any) -> Any:
        return Decoder(self._arrived).value(wire)

    def _arrived(self, wire: dict[str, Any]) -> Any:
        kind = wire.get("t")
        if kind == "handle" and "bases" in wire:
            return self._error_class(wire)
        if kind == "handle":
            number = int(wire["id"])
            if number not in self.objects:
                self.objects[number] = WorkObject(self, number, wire)
            return self.objects[number]
        if kind == "callback":
            return self._function(wire["id"])
        if kind == "builtin":
            found = getattr(builtins, str(wire["n"]))
            if isinstance(found, type):
                return found
        if kind == "error":
            return self.error(wire["v"])
        raise ValueError(f"unknown kind {kind!r}")

    def _error_class(self, wire: dict[str, Any]) -> type:
        number = int(wire["id"])
        if number not in self.objects:
            bases = tuple(self.value(base) for base in wire["bases"])
            safe = bases and all(isinstance(b, type) and issubclass(b, Exception) for b in bases)
            try:
                made = type(str(wire["n"]), bases if safe else (Exception,), {"_work_number": number})
            except TypeError:
                made = type(str(wire["n"]), (Exception,), {"_work_number": number})
            made.__str__ = _error_text  # type: ignore[assignment, method-assign]
            self.objects[number] = made
        return self.objects[number]  # type: ignore[no-any-return]

    def error(self, raised: dict[str, Any]) -> BaseException:
        """The exception of the work, as an exception of this process."""
        kind = self.value(raised["c"])
        arguments = [self.value(part) for part in raised["a"]]
        if not (isinstance(kind, type) and issubclass(kind, BaseException)) or issubclass(kind, _NEVER):
            return _fault(str(raised.get("s"))[:500])
        try:
            error: BaseException = kind.__new__(kind, *arguments)
            if kind.__dict__.get("_work_number") is None:
                error = kind(*arguments)
        except TypeError:
            return _fault(f"{kind.__name__}: {str(raised.get('s'))[:500]}")
        error.args = tuple(arguments)
        for name, wire in raised.get("d", {}).items():
            if not name.startswith("__"):
                error.__dict__[name] = self.value(wire)
        error.__dict__["_work_text"] = str(raised.get("s"))
        return error


def _fault(text: str) -> BaseException:
    error: BaseException = WorkFault(text)
    return error


def _error_text(error: BaseException) -> str:
    text = error.__dict__.get("_work_text")
    return text if isinstance(text, str) else Exception.__str__(error)


def _change(old: Any, new: Any) -> None:
    """An argument that the work changed in place changes here too."""
    if isinstance(old, (list, bytearray)):
        old[:] = new
    elif isinstance(old, (dict, set)):
        old.clear()
        old.update(new)
    elif type(old).__name__ == "deque":
        old.clear()
        old.extend(new)
    else:
        old[...] = new
