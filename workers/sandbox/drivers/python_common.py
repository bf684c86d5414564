"""What the Python drivers share: the line to the server, captured output, time limits, faults as one line."""

from __future__ import annotations

TYPE_CHECKING = False  # the module typing takes a third of the start
if TYPE_CHECKING:
    from typing import Any

import builtins

# The work may replace builtins. Functions look theirs up here, in a copy that it does not know.
globals()["__builtins__"] = dict(vars(builtins))

import fcntl
import json
import os
import signal
import sys

_read, _write, _dup2 = os.read, os.write, os.dup2
_setitimer = signal.setitimer
_SIGALRM, _REAL = int(signal.SIGALRM), int(signal.ITIMER_REAL)
# written in C down to the ground: the rest of json looks up builtins that the work may have replaced
_encoder: Any = json.encoder
_decoder: Any = json.JSONDecoder()
_quoted, _chunks = _encoder.encode_basestring_ascii, _encoder.c_make_encoder
_dumps: Any = _chunks(None, None, _quoted, None, ":", ",", False, False, False)
_scan: Any = _decoder.scan_once
_signal: Any = sys.modules["_signal"]

TEXT = 100_000
"""Characters of a text in an answer."""


class TooLong(BaseException):
    """The time of a cell, a call or a test is over."""


def clean(text: Any, most: int = TEXT) -> str:
    """Real text of bounded length that any JSON reader takes; never a subclass of str."""
    plain = str.__str__(text)[:most]
    return plain.encode("utf-8", "backslashreplace").decode("utf-8")


class Line:
    """JSON lines to and from the server, on file descriptors that the work is not told of."""

    def __init__(self, reads: int, writes: int) -> None:
        self.reads, self.writes = reads, writes
        self._rest = bytearray()

    @classmethod
    def take_over(cls) -> Line:
        """Keeps stdin and stdout for itself; 0, 1 and 2 become /dev/null, until 1 and 2 are captured."""
        reads = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 100)
        writes = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 100)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            _dup2(nothing, number)
        if nothing > 2:
            os.close(nothing)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        return cls(reads, writes)

    def read(self) -> dict[str, Any] | None:
        """The next message; None when the server is gone."""
        while True:
            end = self._rest.find(b"\n")
            if end >= 0:
                line = bytes(self._rest[:end])
                del self._rest[: end + 1]
                if not line.strip():
                    continue
                message = decoded(line)
                if isinstance(message, dict):
                    return message
                continue
            more = _read(self.reads, 1 << 16)
            if not more:
                return None
            self._rest += more

    def write(self, message: dict[str, Any]) -> None:
        """A line break goes first: half a line that somebody else wrote then spoils nothing."""
        send(self.writes, b"\n" + encoded(message))


def encoded(message: dict[str, Any]) -> bytes:
    """One line of JSON with its end."""
    return ("".join(_dumps(message, 0)) + "\n").encode("ascii")


def decoded(line: bytes) -> Any:
    """The value of a line; ValueError or RecursionError if it is none."""
    try:
        return _scan(line.decode("utf-8").lstrip(), 0)[0]
    except StopIteration:
        raise ValueError("not JSON") from None


def send(number: int, data: bytes) -> None:
    """All of it; a reader that has gone is no error."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[_write(number, rest) :]
    except OSError:
        pass


# --- time ---------------------------------------------------------------------------------------------


class Clock:
    """Raises TooLong in the main thread, again and again until it comes through."""

    def __init__(self) -> None:
        self.armed = False
        self.rings = 0

    def _ring(self, _signal_number: int, frame: Any) -> None:
        # our own code gives way by itself, and must not be torn apart
        if not self.armed or frame is None or _folder(frame.f_code.co_filename) == _OURS:
            return
        self.rings += 1
        if self.rings == PATIENT_RINGS:
            _setitimer(_REAL, SHORT_S, SHORT_S)
        raise TooLong

    def start(self, seconds: float) -> None:
        """A bare `except` may swallow a ring, and in a loop many; it goes on until one hits the handler."""
        self.rings = 0
        self.armed = True
        _signal.signal(_SIGALRM, self._ring)
        _setitimer(_REAL, max(seconds, 0.001), LONG_S)

    def stop(self) -> None:
        """From here on nothing is raised."""
        self.armed = False
        _setitimer(_REAL, 0)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


_OURS = _folder(_folder.__code__.co_filename)
LONG_S, SHORT_S = 0.02, 0.0002
PATIENT_RINGS = 10


# --- faults -------------------------------------------------------------------------------------------


def name_of(kind: type) -> str:
    """The name of a class, asked of `type` itself."""
    name = type.__dict__["__name__"].__get__(kind)
    return clean(name, 200)


def fault(error: BaseException) -> str:
    """One line, such as `ValueError: no such day`. Runs code of the work: call it within a time limit."""
    name = name_of(type(error))
    try:
        if isinstance(error, SyntaxError):
            text = clean(str(error.msg), 500)
        else:
            text = clean(str(error), 500)
    except TooLong:
        raise
    except BaseException:  # noqa: BLE001  # its __str__ is the work's
        text = ""
    line = " ".join(text.split())
    return f"{name}: {line}" if line else name


def line_of(error: BaseException, names: Any) -> int | None:
    """The deepest line of the error in a file whose name `names` accepts."""
    if isinstance(error, SyntaxError) and error.filename and names(str(error.filename)):
        return int(error.lineno) if error.lineno else None
    found = None
    step = error.__traceback__
    while step is not None:
        if names(step.tb_frame.f_code.co_filename):
            found = step.tb_lineno
        step = step.tb_next
    return found


def missing_package(error: BaseException | None) -> str:
    """The package that an import failed for, because it is not installed; else an empty text."""
    name = ""
    if isinstance(error, ModuleNotFoundError):
        name = clean(error.name or "").partition(".")[0]
    elif isinstance(error, ImportError):
        text = clean(str(error), 500)
        if "optional dependency '" in text:
            name = text.partition("optional dependency '")[2].partition("'")[0]
    if not name or not name.isidentifier() or name in getattr(sys, "stdlib_module_names", ()):
        return ""
    return "" if any(os.path.exists(path) for path in (name, f"{name}.py")) else name


# --- packages -----------------------------------------------------------------------------------------


class _SiteFinder:
    """Makes installed packages known at the first import that asks for one: most scripts never do."""

    done = False

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        if cls.done or "." in name:
            return None
        use_site()
        from importlib.machinery import PathFinder

        return PathFinder.find_spec(name, None)


def use_site() -> None:
    """What Python does at its start without -S."""
    if not _SiteFinder.done:
        _SiteFinder.done = True
        import site

        site.ENABLE_USER_SITE = False
        site.main()
        bring_fonts()


def bring_fonts() -> None:
    """Matplotlib's list of fonts, made once when the environment was, where it may write."""
    ready = os.path.join(sys.prefix, "share", "matplotlib")
    if os.path.isdir(ready):
        import shutil

        own = os.path.join(os.environ.get("TMPDIR", "/tmp"), "matplotlib")  # noqa: S108
        try:
            shutil.copytree(ready, own)
            os.environ.setdefault("MPLCONFIGDIR", own)
        except OSError:
            pass


def needs_site() -> None:
    """Installs the finder, where Python was started without packages."""
    if "site" not in sys.modules:
        from _sitebuiltins import Quitter

        for name in ("exit", "quit"):
            setattr(builtins, name, Quitter(name, "Ctrl-D (i.e. EOF)"))
        sys.meta_path.append(_SiteFinder)
    else:
        _SiteFinder.done = True
