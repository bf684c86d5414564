"""The Python drivers without a sandbox: processes in a folder of their own, talked to over pipes."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grading.config.settings import SandboxSettings
from grading.execution.values import Answer, Played, Tested
from workers.sandbox.runtimes import find_runtime
from workers.sandbox.runtimes.base import INSIDE
from workers.sandbox.runtimes.python import OWN

PATIENCE_S = 60.0


class Driver:
    """One driver; `read` gives its messages and fails the test when none comes."""

    def __init__(self, argv: Sequence[str], folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            argv,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={"HOME": str(folder), "TMPDIR": str(folder), "LANG": "C.UTF-8", "PATH": os.defpath},
        )
        self._rest = b""

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def read(self) -> dict[str, Any] | None:
        """The next JSON object; None when the process ended. Other lines are left out, as the server does."""
        assert self.process.stdout is not None
        number = self.process.stdout.fileno()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            line, found, rest = self._rest.partition(b"\n")
            if found:
                self._rest = rest
                try:
                    message = json.loads(line)
                except ValueError:
                    continue
                if isinstance(message, dict):
                    return message
                continue
            ready, _, _ = select.select([number], [], [], max(deadline - time.monotonic(), 0))
            assert ready, "the driver says nothing"
            more = os.read(number, 1 << 16)
            if not more:
                return None
            self._rest += more

    def play(self, *cells: str, kind: str = "script", cell_s: float = 20.0, **named: Any) -> list[Played]:
        """Plays cells; also what packages were missing, in `self.missing`."""
        document = "basket.ipynb" if kind == "notebook" else "basket.py"
        work = {"document": document, "kind": kind, "language": "python", "prelude": named.pop("prelude", "")}
        work["cells"] = [{"number": n, "source": source, "first_line": 1} for n, source in enumerate(cells)]
        self.send({"do": "play", "work": work, "as_main": True, "cell_s": cell_s, "output_kb": 64, **named})
        played: list[Played] = []
        self.missing: list[str] = []
        while (message := self.read()) is not None and message["event"] != "played":
            if message.pop("event") == "missing":
                self.missing.append(message["package"])
            else:
                played.append(Played.model_validate(message))
        return played

    def ask(self, code: str, seconds: float = 20.0) -> Answer:
        self.send({"do": "ask", "code": code, "seconds": seconds})
        return self._answer()

    def look(self, name: str) -> Answer:
        self.send({"do": "look", "name": name})
        return self._answer()

    def _answer(self) -> Answer:
        while (message := self.read()) is not None:
            if message.pop("event") == "answer":
                return Answer.model_validate(message)
        return Answer(state="not reached")

    def end(self) -> int:
        """Ends it as the server does; its exit status."""
        self.send({"do": "end"})
        return self.process.wait(PATIENCE_S)


def commands(python: str = "") -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(the driver of the work, that of the tests), at their places outside of a sandbox."""
    runtime = find_runtime("python", SandboxSettings(python=python))
    assert not runtime.problem
    places = {mount.target: str(mount.source) for mount in runtime.mounts}

    def outside(part: str) -> str:
        for inside in (f"{INSIDE}/drivers", OWN):
            if part.startswith(inside):
                return places[inside] + part.removeprefix(inside)
        return part

    work, tests = (tuple(outside(part) for part in argv) for argv in (runtime.work_argv, runtime.tests_argv))
    return work, tests


@contextmanager
def driver(argv: Sequence[str], folder: Path) -> Iterator[Driver]:
    """A driver; every process that it started in its session is ended with it."""
    folder.mkdir(parents=True, exist_ok=True)
    running = Driver(argv, folder)
    try:
        yield running
    finally:
        try:
            os.killpg(running.process.pid, 9)
        except ProcessLookupError:
            pass
        running.process.wait(PATIENCE_S)
        for pipe in (running.process.stdin, running.process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                pass


def run_tests(folder: Path, work: str, tests: str, seconds: float = 20.0) -> list[Tested]:
    """Tests of a script, each in their process, with the server's part played here."""
    work_argv, tests_argv = commands()
    path = "tests/test_basket.py"
    with driver(work_argv, folder / "work") as own, driver(tests_argv, folder / "tests") as held:
        own.play(work)
        file = {"path": path, "source": tests, "seconds": seconds}
        held.send({"do": "test", "module": "basket", "file": file})
        found: list[Tested] = []
        while (message := held.read()) is not None and message["event"] != "tests done":
            if message["event"] == "remote":
                held.send({"do": "remote", "body": _relay(own, message["body"], seconds)})
            else:
                assert message.pop("event") == "tested"
                found.append(Tested.model_validate(message))
        assert held.end() == 0
        return found


def _relay(own: Driver, body: Any, seconds: float) -> Any:
    own.send({"do": "remote", "body": body, "seconds": seconds})
    while (message := own.read()) is not None:
        if message["event"] == "remote":
            return message["body"]
    return {"gone": True}
