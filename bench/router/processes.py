"""Processes of the benchmark: each in a group of its own, with a log, ended in order."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STOP_S = 15.0
ROOT = Path(__file__).parent.parent.parent


@dataclass
class Processes:
    """Processes with their logs in `folder`; a context manager ends them."""

    folder: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str, command: Sequence[str], *, talks: bool = False) -> subprocess.Popen[bytes]:
        """Start a process; with `talks` its standard input and output are pipes."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = self.running[name] = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **self.environ},
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE if talks else log,
                stderr=log,
                start_new_session=True,
            )
        return process

    def kill(self, name: str) -> None:
        """End its process group at once, as a machine that loses power."""
        process = self.running.pop(name)
        _signal(process, signal.SIGKILL)
        process.wait(STOP_S)

    def stop(self) -> None:
        """End all of them in order, by force after a while."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self.running.values():
                if process.poll() is None:
                    _signal(process, number)
            for process in self.running.values():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(STOP_S)
        for process in self.running.values():
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()
        self.running.clear()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def write_line(process: subprocess.Popen[bytes], value: Any) -> None:
    """A line of JSON to a process that talks."""
    assert process.stdin is not None
    process.stdin.write(json.dumps(value).encode() + b"\n")
    process.stdin.flush()


def read_line(process: subprocess.Popen[bytes]) -> str:
    """Its next line; empty when it ended."""
    assert process.stdout is not None
    return process.stdout.readline().decode()


def children_cpu_s() -> float:
    """Processor seconds of this process and of all children that have ended."""
    mine, theirs = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return mine.ru_utime + mine.ru_stime + theirs.ru_utime + theirs.ru_stime


def process_cpu_s(pid: int) -> float:
    """Processor seconds of a running process and its threads so far."""
    counted = Path(f"/proc/{pid}/stat")
    if counted.exists():  # on Linux, in hundredths
        after_name = counted.read_text(encoding="utf-8").rpartition(")")[2].split()
        return sum(map(int, after_name[11:13])) / os.sysconf("SC_CLK_TCK")
    told = subprocess.run(["ps", "-o", "time=", "-p", str(pid)], capture_output=True, text=True, check=True)
    minutes, _, seconds = told.stdout.strip().rpartition(":")
    return 60 * float(minutes) + float(seconds)


@dataclass(frozen=True)
class EmulatedServers:
    """The emulated machines: where they answer, and the process they are."""

    urls: Mapping[str, str]
    process: subprocess.Popen[bytes]

    def change(self, machine: str, speed: float) -> None:
        """Make it slower, dead (0) or as usual (1)."""
        self._ask({"machine": machine, "speed": speed})

    def ended(self) -> dict[str, dict[str, int]]:
        """machine -> how requests ended there -> how many."""
        found: dict[str, dict[str, int]] = self._ask({})["ended"]
        return found

    def waiting(self, machine: str) -> int:
        """Requests that wait for a slot there."""
        return int(self._ask({})["waiting"][machine])

    def cpu_s(self) -> float:
        """Processor seconds they took so far."""
        return float(self._ask({})["cpu_s"])

    def _ask(self, wish: Mapping[str, object]) -> dict[str, Any]:
        write_line(self.process, wish)
        answer: dict[str, Any] = json.loads(read_line(self.process))
        return answer


def start_servers(
    processes: Processes, factor: float, slots: int, queue: int = 512, cluster_model: str = "own"
) -> EmulatedServers:
    """All machines of a cluster model in one process of their own."""
    options = {"factor": factor, "slots": slots, "queue": queue, "cluster-model": cluster_model}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "bench.router.emulated_servers", *words]
    process = processes.start("servers", command, talks=True)
    return EmulatedServers(json.loads(read_line(process)), process)
