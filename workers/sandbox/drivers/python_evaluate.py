"""Expressions and variables, each evaluated in a forked copy of the work, ended with all it started."""

from __future__ import annotations

TYPE_CHECKING = False  # the module typing takes a third of the start
if TYPE_CHECKING:
    from typing import Any

import builtins

globals()["__builtins__"] = dict(vars(builtins))

import _ast
import os
import select
import signal
import sys
import time

from python_common import (
    Line,
    TooLong,
    decoded,
    encoded,
    fault,
    missing_package,
    send,
)
from python_output import Capture, TooMuchOutput
from python_shape import Shaper

_open, _fork, _pipe, _close, _read, _exit, _getpid = (
    os.open,
    os.fork,
    os.pipe,
    os.close,
    os.read,
    os._exit,
    os.getpid,
)
_kill, _killpg, _setpgid, _waitpid = os.kill, os.killpg, os.setpgid, os.waitpid
_monotonic, _poll = time.monotonic, select.poll

PRINTED = 64_000
"""Bytes that an expression may print."""
LARGEST = 3_500_000
"""Bytes of an answer."""
_AST_ONLY = 0x400  # ast.PyCF_ONLY_AST, without importing ast


class Asker:
    """Forks a copy for each question."""

    def __init__(self, line: Line, say: Any) -> None:
        self.line, self.say = line, say
        _adopt_orphans()
        evaluate("0", {})  # the compiler makes its tables once, here and not in every copy

    def look(self, space: dict[str, Any], name: str) -> dict[str, Any]:
        """The value of a variable."""
        if name not in space:
            return _answer("missing")
        return self._in_copy(lambda: space[name], 5.0)

    def ask(self, space: dict[str, Any], code: str, seconds: float) -> dict[str, Any]:
        """The value of the last expression of some code."""
        return self._in_copy(lambda: evaluate(code, space), seconds)

    def _in_copy(self, value: Any, seconds: float) -> dict[str, Any]:
        end = _monotonic() + seconds
        before = set(_children())
        reads, writes = _pipe()
        capture = Capture(PRINTED)
        try:
            pid = _fork()
        except OSError:
            _close(reads)
            _close(writes)
            capture.end()
            return _answer("error", "no process could be started: too many are running")
        if pid == 0:
            _be_the_copy(value, capture, writes, (self.line.reads, self.line.writes, reads))
        _close(writes)
        try:
            answer = self._wait(pid, reads, end)
        finally:
            _close(reads)
            _end(pid, before)
        answer["printed"] = "".join(capture.take())
        capture.end()
        missing = answer.pop("missing", "")
        if missing and type(missing) is str:
            self.say({"event": "missing", "package": missing[:200]})
        return answer

    def _wait(self, pid: int, reads: int, end: float) -> dict[str, Any]:
        """Reads one line. A copy that ended without one, or whose time is over, has an answer too."""
        data = bytearray()
        poll = _poll()
        poll.register(reads, select.POLLIN | select.POLLHUP)
        gone = False
        while b"\n" not in data and len(data) <= LARGEST:
            left = end - _monotonic()
            if left <= 0:
                return _answer("too long")
            if poll.poll(min(left, 0.1) * 1000 + 1):
                more = _read(reads, 1 << 16)
                if not more:
                    break
                data += more
            elif gone:
                break
            else:
                gone = _has_ended(pid)
        try:
            answer = decoded(bytes(data).partition(b"\n")[0])
            if type(answer) is dict and answer.get("event") == "answer":
                return answer
        except (ValueError, RecursionError):
            pass
        return _answer("error", "the program ended while this was evaluated")


def evaluate(code: str, space: dict[str, Any]) -> Any:
    """Runs statements; the value of the last one, if it is an expression."""
    tree: Any = compile(code.strip(), "<expression>", "exec", _AST_ONLY, True)
    if not tree.body or type(tree.body[-1]).__name__ != "Expr":
        exec(compile(tree, "<expression>", "exec", 0, True), space)
        return None
    last = tree.body.pop()
    if tree.body:
        exec(compile(tree, "<expression>", "exec", 0, True), space)
    return eval(compile(_ast.Expression(last.value), "<expression>", "eval", 0, True), space)


def _be_the_copy(value: Any, capture: Capture, writes: int, closed: tuple[int, ...]) -> None:
    """What the forked copy does, up to its end."""
    try:
        _setpgid(0, 0)
        for number in closed:
            _close(number)
        capture.begin()
        send(writes, encoded(_answer_of(value, capture)))
    finally:
        _exit(0)


def _answer_of(value: Any, capture: Capture) -> dict[str, Any]:
    try:
        try:
            found = value()
            shape = Shaper().shape(found)
        finally:
            capture.flush()
        if capture.full:
            raise TooMuchOutput
        answer = {**_answer("value"), "value": shape}
        if len(encoded(answer)) > LARGEST:
            return _answer("error", "the value is too large to be compared")
        return answer
    except TooMuchOutput:
        return _answer("error", "too much output")
    except TooLong:
        return _answer("too long")
    except BaseException as error:  # noqa: BLE001  # whatever the work raises is its answer
        return {**_answer("error", fault(error)), "missing": missing_package(error)}


def _answer(state: str, error: str = "") -> dict[str, Any]:
    return {"event": "answer", "state": state, "value": None, "error": error, "printed": ""}


# --- processes ----------------------------------------------------------------------------------------


def _adopt_orphans() -> None:
    """Makes this process the parent of what its descendants leave behind (Linux), so that it can be ended."""
    if sys.platform != "linux":
        return
    try:
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    except (ImportError, OSError, AttributeError):
        pass


def _children() -> list[int]:
    """The direct children of this process, as far as the system says."""
    own = _getpid()
    try:
        number = _open(f"/proc/{own}/task/{own}/children", os.O_RDONLY)
    except OSError:
        return []
    try:
        return [int(part) for part in _read(number, 1 << 16).split()]
    finally:
        _close(number)


def _has_ended(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except OSError:
        return True


def _end(pid: int, before: set[int]) -> None:
    """Ends a copy, its group, and whatever of it was left behind, generation by generation."""
    for kill in (_killpg, _kill):
        try:
            kill(pid, signal.SIGKILL)
        except OSError:
            pass
    _reap(pid)
    for _ in range(100):
        new = [child for child in _children() if child not in before]
        if not new:
            return
        for child in new:
            try:
                _kill(child, signal.SIGKILL)
            except OSError:
                pass
            _reap(child)


def _reap(pid: int) -> None:
    try:
        _waitpid(pid, 0)
    except OSError:
        pass
