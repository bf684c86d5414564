"""R's drivers over pipes, without a sandbox."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.sandbox.runtimes.base import DRIVERS
from workers.sandbox.runtimes.r import argv

RSCRIPT = shutil.which("Rscript") or "Rscript"


@dataclass
class Line:
    """The conversation with one driver."""

    process: subprocess.Popen[bytes]
    missing: list[str] = field(default_factory=list)

    def send(self, **message: Any) -> None:
        """One line to the driver."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """One line from the driver; fails when it ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the driver ended"
        message: dict[str, Any] = json.loads(line)
        return message

    def play(
        self, *cells: str, kind: str = "notebook", cell_s: float = 20, **more: Any
    ) -> list[dict[str, Any]]:
        """Play cells numbered from 1; gives what became of each."""
        codes = [{"number": n, "source": source, "first_line": 1} for n, source in enumerate(cells, start=1)]
        work = {"document": "w.R", "kind": kind, "language": "r", "prelude": "", "cells": codes, **more}
        self.send(do="play", work=work, as_main=True, cell_s=cell_s, output_kb=64)
        played = []
        while (message := self.receive())["event"] != "played":
            if message["event"] == "missing":
                self.missing.append(message["package"])
            else:
                played.append(message)
        return played

    def ask(self, code: str, seconds: float = 20) -> dict[str, Any]:
        """The answer to an expression."""
        self.send(do="ask", code=code, seconds=seconds)
        return self.receive()

    def look(self, name: str) -> dict[str, Any]:
        """The answer about a variable."""
        self.send(do="look", name=name)
        return self.receive()

    def end(self) -> int:
        """Ask it to end; its exit status."""
        self.send(do="end")
        return self.process.wait(60)

    def run_tests(self, work: Line, source: str, seconds: float = 20) -> dict[str, dict[str, Any]]:
        """Run a test file here, with calls relayed to `work`; the outcome of each test by its name."""
        file = {"path": "test_work.R", "source": source, "seconds": seconds}
        self.send(do="test", module="work", file=file)
        tested: dict[str, dict[str, Any]] = {}
        while (message := self.receive())["event"] != "tests done":
            if message["event"] == "remote":
                work.send(do="remote", body=message["body"], seconds=seconds)
                self.send(do="remote", body=work.receive()["body"])
            else:
                tested[message["name"]] = message
        return tested


@contextmanager
def driver(name: str, folder: Path) -> Iterator[Line]:
    """A driver started in a folder; all of its processes end with the block."""
    environ = {"PATH": os.defpath, "HOME": str(folder), "TMPDIR": str(folder), "LANG": "C.UTF-8", "TZ": "UTC"}
    process = subprocess.Popen(
        argv(RSCRIPT, str(DRIVERS / name)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=folder,
        env=environ,
        start_new_session=True,
    )
    try:
        yield Line(process)
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.communicate()


def text_of(cell: dict[str, Any], *kinds: str) -> str:
    """All text of a cell's outputs of these kinds, or of all."""
    return "".join(o["text"] for o in cell["outputs"] if not kinds or o["kind"] in kinds)


def pictures(cell: dict[str, Any]) -> int:
    """How many pictures a cell shows."""
    return sum(o["image"] for o in cell["outputs"])
