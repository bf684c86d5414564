"""Runs another program on a machine for as long as the connection to the server lives.

Standard library only: the server hands this text to the machine's Python over SSH. Standard input brings
frames: four bytes of length, then so many bytes. The first is the program, as JSON with the modules of this
tree that it imports; those after it are its standard input, empty ones only say that the server is there. The
words are the seconds that the program has to end by itself once the connection is gone (0: it is ended at
once), then what the program is called with.
"""

from __future__ import annotations

import json
import os
import select
import signal
import struct
import sys
import time
import traceback
import types

SILENCE_S = 20.0
"""Without a frame for so long, nobody is there any more; the server sends one every few seconds."""
TERM_S = 3.0
END = 0xFFFFFFFF
"""The length that says: this was the program's whole input."""
CHUNK = 1 << 19
AHEAD = 1 << 24
"""Bytes that are taken for a program before it takes them; later only some pieces a second."""


class Lost(Exception):
    """The connection is gone."""


class Frames:
    """What comes from the server."""

    def __init__(self) -> None:
        self._data = b""
        self._left = 0
        self._heard = time.monotonic()

    def read(self) -> None:
        """Take what has come. Raises Lost."""
        new = os.read(0, CHUNK)
        if not new:
            raise Lost
        self._heard = time.monotonic()
        self._data += new

    def program(self) -> bytes:
        """The whole first frame. Raises Lost."""
        while len(self._data) < 4 or len(self._data) - 4 < struct.unpack(">I", self._data[:4])[0]:
            self.wait(0)
        end = 4 + struct.unpack(">I", self._data[:4])[0]
        whole, self._data = self._data[4:end], self._data[end:]
        return whole

    def piece(self) -> bytes | None:
        """The next of the input that has come, nothing when all was given, None when it ends."""
        while not self._left:
            if len(self._data) < 4:
                return b""
            (self._left,) = struct.unpack(">I", self._data[:4])
            self._data = self._data[4:]
            if self._left == END:
                self._left = 0
                return None
        piece, self._data = self._data[: self._left], self._data[self._left :]
        self._left -= len(piece)
        return piece

    def wait(self, also: int) -> bool:
        """Take what has come, or wait for it; whether there is something on the other descriptor.

        Raises Lost when nothing comes any more.
        """
        readable, _, _ = select.select([0, also], [], [], 1.0)
        if 0 in readable:
            self.read()
        elif time.monotonic() - self._heard > SILENCE_S:
            raise Lost
        return also in readable

    def look(self) -> None:
        """Take what has come while the program takes nothing: the end may be behind it. Raises Lost."""
        self._heard = time.monotonic()
        for _ in range(4):
            if select.select([0], [], [], 0)[0]:
                self.read()

    @property
    def many(self) -> bool:
        """Whether much was taken that the program has not."""
        return len(self._data) > AHEAD


class Program:
    """A program in a process and group of its own, and its standard input."""

    def __init__(self, text: bytes, words: list[str]) -> None:
        gives, self._input = os.pipe()
        self.ended, lives = os.pipe()  # the second is held by the program alone
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            os.dup2(gives, 0)
            for number in (gives, self._input, self.ended):
                os.close(number)
            run(text, words)
        os.close(gives)
        os.close(lives)
        os.set_blocking(self._input, False)

    def feed(self, frames: Frames) -> None:
        """Give it its input until it has ended. Raises Lost."""
        ended = False
        while not ended:
            piece = frames.piece()
            if piece is None:
                self.close()
            elif piece:
                ended = self._give(piece, frames)
            else:
                ended = frames.wait(self.ended)

    def _give(self, piece: bytes, frames: Frames) -> bool:
        """Give it a piece, as soon as it takes it; whether it has ended before."""
        while piece and self._input >= 0:
            sources = [self.ended] if frames.many else [self.ended, 0]
            readable, writable, _ = select.select(sources, [self._input], [], 1.0)
            if self.ended in readable:
                return True
            if not writable:
                frames.look()
                continue
            try:
                piece = piece[os.write(self._input, piece) :]
            except BrokenPipeError:
                self.close()  # it wants no more
        return False

    def close(self) -> None:
        """Its input ends."""
        if self._input >= 0:
            os.close(self._input)
            self._input = -1

    def end(self, own_s: float) -> None:
        """End it and what it started; first it has so many seconds to do that itself."""
        self.close()
        if not own_s:
            os.killpg(self.pid, signal.SIGTERM)
        deadline = time.monotonic() + (own_s or TERM_S)
        while time.monotonic() < deadline and not os.waitpid(self.pid, os.WNOHANG)[0]:
            time.sleep(0.05)
        os.killpg(self.pid, signal.SIGKILL)


def run(text: bytes, words: list[str]) -> None:
    """Run the program in this process and end with its exit status."""
    sys.argv = ["-c", *words]
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    status: object = 1
    sent = json.loads(text)
    try:
        for name, source in sent["modules"].items():
            add(name, source)
        exec(compile(sent["program"], "<grader>", "exec"), module.__dict__)  # noqa: S102
        status = 0
    except SystemExit as end:
        status = end.code or 0
    except Exception:  # noqa: BLE001 - whatever it is, the server is told
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                status = 1  # nobody reads it any more
        os._exit(status if isinstance(status, int) else 1)


def add(name: str, source: str) -> None:
    """Let a module be imported under its name, whatever is installed here."""
    parent, _, last = name.rpartition(".")
    packages = parent.split(".")
    for end in range(1, len(packages) + 1):
        sys.modules.setdefault(".".join(packages[:end]), types.ModuleType(packages[end - 1]))
    module = sys.modules[name] = types.ModuleType(name)
    setattr(sys.modules[parent], last, module)
    exec(compile(source, f"<{name}>", "exec"), module.__dict__)  # noqa: S102


def main(own_s: str, *words: str) -> int:
    """Run a program; its exit status, or 1 when the connection ended first."""
    os.write(1, b"\n")  # the connection is made
    frames = Frames()
    try:
        text = frames.program()
    except Lost:
        return 1
    program = Program(text, list(words))
    try:
        program.feed(frames)
    except Lost:
        try:
            program.end(float(own_s))
        except ProcessLookupError:
            pass  # all of it has ended
        return 1
    status = os.waitstatus_to_exitcode(os.waitpid(program.pid, 0)[1])
    return status if status >= 0 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
