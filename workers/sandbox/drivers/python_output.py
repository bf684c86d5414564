"""What a cell, a call or an expression prints, by Python, C code or programs it starts, up to a size."""

from __future__ import annotations

TYPE_CHECKING = False  # the module typing takes a third of the start
if TYPE_CHECKING:
    from typing import Any

import builtins

globals()["__builtins__"] = dict(vars(builtins))

import io
import os
import sys

_open, _close, _unlink, _urandom = os.open, os.close, os.unlink, os.urandom
_dup2, _lseek, _pread = os.dup2, os.lseek, os.pread
_FOLDER = os.environ.get("TMPDIR", "/tmp")  # noqa: S108  # the sandbox's own
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class TooMuchOutput(BaseException):
    """More was printed than is kept."""


class Room:
    """A file without a name that stands behind a file descriptor; the first `size` bytes count."""

    def __init__(self, size: int) -> None:
        self.size = max(size, 1)
        self.mark = 0
        self.number = _nameless()

    @property
    def used(self) -> int:
        return max(_lseek(self.number, 0, os.SEEK_CUR), 0)

    @property
    def full(self) -> bool:
        return self.used >= self.size

    def take(self) -> str:
        """What came since the last time."""
        used = min(self.used, self.size)
        data = _pread(self.number, max(used - self.mark, 0), self.mark)
        self.mark = max(used, self.mark)
        return data.decode("utf-8", "backslashreplace")

    def close(self) -> None:
        _close(self.number)


def _nameless() -> int:
    """A new file in the folder for temporary files; where the work has spoilt that, nothing is kept."""
    path = f"{_FOLDER}/.printed-{_urandom(8).hex()}"
    try:
        number = _open(path, _NEW, 0o600)
        _unlink(path)
    except OSError:
        return _open("/dev/null", os.O_RDWR)
    return number


class _Capped(io.FileIO):
    """A file descriptor that takes no more than its room has."""

    def __init__(self, number: int, room: Room) -> None:
        super().__init__(number, "w", closefd=False)
        self._room = room

    def write(self, data: Any) -> int:
        left = self._room.size - self._room.used
        if len(data) > left:
            super().write(bytes(data[: max(left, 0)]))
            raise TooMuchOutput
        return super().write(data) or 0


class Capture:
    """File descriptors 1 and 2 and `sys.stdout`, `sys.stderr`, for one cell, call or expression."""

    def __init__(self, size: int) -> None:
        self.out, self.err = Room(size), Room(size)
        self.streams: list[Any] = []

    def begin(self) -> None:
        for room, number, name in ((self.out, 1, "stdout"), (self.err, 2, "stderr")):
            _dup2(room.number, number)
            raw = _Capped(number, room)
            stream = io.TextIOWrapper(
                io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True
            )
            self.streams.append(stream)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)

    def flush(self) -> None:
        """Raises TooMuchOutput; a stream that was closed or spoilt is left alone."""
        for stream in self.streams:
            try:
                stream.flush()
            except (OSError, ValueError):
                pass

    def take(self) -> tuple[str, str]:
        """(stdout, stderr) since the last time."""
        return self.out.take(), self.err.take()

    @property
    def used(self) -> int:
        return self.out.used + self.err.used

    @property
    def full(self) -> bool:
        return self.out.full or self.err.full

    def end(self) -> None:
        """Gives the memory back; what still writes to 1 and 2 writes to nothing."""
        nothing = _open("/dev/null", os.O_WRONLY)
        for number in (1, 2):
            _dup2(nothing, number)
        _close(nothing)
        for stream in self.streams:
            # a stream that could not be emptied complains when it is thrown away
            _kept.append(stream)
        del _kept[:-4]
        self.out.close()
        self.err.close()


_kept: list[Any] = []
