"""What the sandbox costs: sandbox runs a second, against those in bare processes with the same limits.

Both are measured in turns within one run, with as many at a time as there are cores, or as asked for.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from grading.config.settings import Limits, SandboxSettings
from grading.execution.values import Code, Expression, Request, Work
from workers.sandbox.backends import open_backend
from workers.sandbox.backends.base import Backend, Mount, SandboxSpec, Session
from workers.sandbox.backends.bwrap_process import hold_to
from workers.sandbox.backends.json_lines import PipedSession, environment
from workers.sandbox.backends.watchdog import Watcher
from workers.sandbox.request_runner import Executor
from workers.sandbox.runtimes import find_runtime
from workers.sandbox.runtimes.base import Runtime

TURNS = 10
"""So often both are measured, one after the other."""
LIMITS = Limits(seconds=20, cell_s=5)
PROGRAM = """\
def search(x, seq):
    for place, value in enumerate(seq):
        if x <= value:
            return place
    return len(seq)


def merged(left, right):
    out = []
    while left and right:
        out.append(left.pop(0) if left[0] <= right[0] else right.pop(0))
    return out + left + right


BASE = {number}
"""


@dataclass(frozen=True)
class Checks:
    """Executions a second, bare and in the sandbox; `cores`: the share of time that each core was busy."""

    sandbox: str
    runs: int
    at_once: int
    bare_per_s: float
    sandbox_per_s: float
    ratio: float
    bare_cores: tuple[float, ...]
    sandbox_cores: tuple[float, ...]
    slowest_s: float
    not_finished: int
    """Executions in the sandbox that did not come to their end."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass
class _Side:
    """One of the two, summed over its turns."""

    executor: Executor
    seconds: float = 0.0
    slowest: float = 0.0
    not_finished: int = 0
    busy: tuple[float, ...] = ()
    idle: tuple[float, ...] = ()

    def turn(self, requests: Sequence[Request], at_once: int) -> None:
        before, began = _core_times(), time.perf_counter()
        with ThreadPoolExecutor(at_once) as pool:
            done = list(pool.map(self.executor.run, requests))
        self.seconds += time.perf_counter() - began
        spans = [(b1 - b0, i1 - i0) for (b0, i0), (b1, i1) in zip(before, _core_times(), strict=True)]
        self.busy = _sums(self.busy, [busy for busy, _ in spans])
        self.idle = _sums(self.idle, [idle for _, idle in spans])
        self.slowest = max(self.slowest, *(execution.seconds for execution in done))
        self.not_finished += sum(execution.end != "finished" for execution in done)

    @property
    def cores(self) -> tuple[float, ...]:
        return tuple(round(b / (b + i), 2) for b, i in zip(self.busy, self.idle, strict=True) if b + i)


def _sums(old: tuple[float, ...], new: Sequence[float]) -> tuple[float, ...]:
    return tuple(a + b for a, b in zip(old or [0.0] * len(new), new, strict=True))


def _core_times() -> list[tuple[float, float]]:
    """Busy and idle time of each core that this process may use, in ticks."""
    mine = os.sched_getaffinity(0)
    found = []
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu" and int(name[3:]) in mine:
            ticks = [float(field) for field in fields[:8]]
            idle = ticks[3] + ticks[4]
            found.append((sum(ticks) - idle, idle))
    return found


def measure(
    sandbox: Backend,
    bare: Backend,
    runtime: Callable[[Any], Runtime],
    requests: Sequence[Request],
    at_once: int = 0,
) -> Checks:
    """Run all requests on both sides, in turns; `at_once` is one a core unless it is given."""
    at_once = at_once or len(os.sched_getaffinity(0))
    sandboxed, plain = _Side(Executor(sandbox, runtime)), _Side(Executor(bare, runtime))
    for side in (sandboxed, plain):  # files are read and libraries found once before it counts
        side.executor.run(requests[0])
    size = -(-len(requests) // TURNS)
    for first in range(0, len(requests), size):
        for side in (plain, sandboxed):
            side.turn(requests[first : first + size], at_once)
    bare_rate, rate = len(requests) / plain.seconds, len(requests) / sandboxed.seconds
    return Checks(
        sandbox=sandbox.name,
        runs=len(requests),
        at_once=at_once,
        bare_per_s=round(bare_rate, 2),
        sandbox_per_s=round(rate, 2),
        ratio=round(rate / bare_rate, 3),
        bare_cores=plain.cores,
        sandbox_cores=sandboxed.cores,
        slowest_s=sandboxed.slowest,
        not_finished=sandboxed.not_finished,
    )


def made(runs: int) -> list[Request]:
    """Small programs made on the spot, with 11 to 17 expressions each."""
    return [_made(number) for number in range(runs)]


def _made(number: int) -> Request:
    codes = [f"search({number * n}, tuple(range(0, 100, {n + 3}))) + BASE" for n in range(6)]
    codes += [f"merged([1, {n}, 40], list(range(0, 60, {n + 2})))" for n in range(5 + number % 7)]
    return _request(f"work{number}.py", PROGRAM.replace("{number}", str(number)), "", codes)


def from_folder(folder: Path, runs: int) -> list[Request]:
    """Programs of a folder `*/correct/*.py`, `*/wrong/*.py`, with expressions in `*/tests/input_*.txt`."""
    found = []
    for question in sorted(path for path in folder.iterdir() if path.is_dir()):
        codes = [path.read_text() for path in sorted(question.rglob("input_*.txt"))]
        prelude = "\n".join(path.read_text() for path in sorted(question.rglob("global.py")))
        for kind in ("correct", "wrong"):
            for path in sorted((question / kind).glob("*.py")):
                found.append(_request(path.name, path.read_text(), prelude, codes))
    return found[:runs]


def _request(name: str, source: str, prelude: str, codes: Sequence[str]) -> Request:
    work = Work(document=name, language="python", prelude=prelude, cells=(Code(number=1, source=source),))
    return Request(work=work, expressions=tuple(Expression(code=code) for code in codes), limits=LIMITS)


class BareBox:
    """Opens programs of this machine as they are. Nothing keeps them from anything: for trusted work only."""

    name = "bare"

    def __init__(self) -> None:
        self._watcher = Watcher()

    def problem(self) -> str:
        """Always empty."""
        return ""

    def open(self, spec: SandboxSpec) -> Session:
        """Start the program in a new folder, which stands for `/box`."""
        folder = tempfile.TemporaryDirectory(prefix="grader-bare-")
        work = Path(folder.name)
        for mount in spec.mounts:
            _link(mount, work)
        places = {mount.target: str(mount.source) for mount in spec.mounts} | {"/box": folder.name}
        process = subprocess.Popen(
            [_outside(word, places) for word in spec.argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd=work,
            env={name: _outside(value, places) for name, value in environment(spec).items()},
            start_new_session=True,
        )
        # the kernel counts a user's processes everywhere, which in a sandbox are only its own
        hold_to(process.pid, spec.limits.model_copy(update={"processes": 1_000_000}))
        return PipedSession(_Program(process, folder), spec.limits, self._watcher)


def _link(mount: Mount, work: Path) -> None:
    """A link in place of what a sandbox would see below `/box`."""
    if mount.target.startswith("/box/"):
        place = work / mount.target.removeprefix("/box/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(mount.source)


def _outside(word: str, places: Mapping[str, str]) -> str:
    """A word of a command line with the path outside in place of the one inside."""
    for target, source in places.items():
        if word == target or word.startswith(f"{target}/"):
            return source + word.removeprefix(target)
    return word


class _Program:
    """A started program; see `workers.sandbox.backends.json_lines.Program`."""

    def __init__(self, process: subprocess.Popen[bytes], folder: tempfile.TemporaryDirectory[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.stdin, self.stdout = process.stdin.fileno(), process.stdout.fileno()
        self._process = process
        self._folder = folder

    @property
    def root_pid(self) -> int | None:
        return self._process.pid

    @property
    def entered_pid(self) -> int | None:
        """None: nothing enters from outside."""
        return None

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def release(self) -> int | None:
        code = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._folder.cleanup()
        return code if code >= 0 else 128 - code


@click.command("sandbox")
@click.option("--runs", default=200, show_default=True, help="Programs to run.")
@click.option(
    "--programs",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of programs with tests; generated by default.",
)
@click.option("--at-once", default=0, help="Concurrent programs; one per core by default.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(runs: int, programs: Path | None, at_once: int, as_json: bool) -> None:
    """Compare sandboxed programs with plain processes."""
    requests = from_folder(programs, runs) if programs else made(runs)
    if not requests:
        raise click.ClickException("The folder of --programs has no correct/*.py or wrong/*.py.")
    settings = SandboxSettings()
    sandbox = open_backend(settings.backend)
    runtime = find_runtime("python", settings)
    problem = sandbox.problem() or runtime.problem
    if problem:
        raise click.ClickException(problem)
    figures = measure(sandbox, BareBox(), lambda _language: runtime, requests, at_once)
    if as_json:
        click.echo(json.dumps(figures.as_dict(), indent=2))
        return
    for name, value in figures.as_dict().items():
        click.echo(f"{name:<16} {value}")
