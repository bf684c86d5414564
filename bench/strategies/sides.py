"""The two machines of the benchmark, as the one who drives them sees them: a process on a core each."""

from __future__ import annotations

import ctypes.util
import itertools
import json
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.engines_sides import BenchmarkBroken

WAIT_S = 400.0
SLOW_CORE = "Prescott"
"""The vector instructions that OpenBLAS uses on the machine that reads slowly: 128 bits, no FMA."""


class SideGone(BenchmarkBroken):
    """A process of the benchmark ended, or could not do what it was told."""


@dataclass(frozen=True)
class Ask:
    """A prompt: what is its own, at most so many tokens of answer, and what a class shares, if anything."""

    user: str
    most: int
    system: str = ""


@dataclass(frozen=True)
class Made:
    """A generation. Moments are of `time.monotonic`, which both processes share."""

    asked: float
    first: float
    """When its first token was there."""
    ended: float
    prompt: int
    cached: int
    output: int
    hybrid: dict[str, Any] | None
    speculative: dict[str, Any] | None

    @property
    def first_s(self) -> float:
        """Seconds until the first token."""
        return self.first - self.asked

    @property
    def writing_s(self) -> float:
        """Seconds after the first token."""
        return self.ended - self.first


@dataclass(frozen=True)
class Read:
    """One prompt that was read for another machine."""

    begun: float
    passes: list[float]
    """When each pass ended."""
    bytes: list[int]
    """Of the cache, of each pass."""

    @property
    def pass_s(self) -> list[float]:
        """Seconds of each pass."""
        return [end - begin for begin, end in itertools.pairwise([self.begun, *self.passes])]

    @property
    def seconds(self) -> float:
        """From the beginning of reading to the end of the last pass."""
        return self.passes[-1] - self.begun


class Side:
    """One machine. Thread-safe."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._numbers = itertools.count(1)
        self._open: dict[int, Future[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def serve(self, name: str, **manner: Any) -> str:
        """Have it read prompts for the other one; the address where."""
        return str(self._call("serve", name=name, **manner).result(WAIT_S)["address"])

    def engine(self, name: str, address: str | None = None, strategy: str = "disaggregated") -> None:
        """Have it make an engine of this name, which has prompts read at the address if there is one."""
        self._call("engine", name=name, address=address, strategy=strategy).result(WAIT_S)

    def drafting(self, name: str, draft: Path) -> None:
        """Have it make an engine for which a draft model proposes."""
        self._call("engine", name=name, draft=str(draft)).result(WAIT_S)

    def begin(self, engine: str, ask: Ask) -> Future[dict[str, Any]]:
        """Have it begin to answer."""
        return self._call("generate", engine=engine, **asdict(ask))

    def answer(self, engine: str, ask: Ask) -> Made:
        """Have it answer."""
        return made(self.begin(engine, ask), ask)

    def read(self, name: str) -> list[Read]:
        """The prompts that it read for the other one since the last time."""
        return [Read(**note) for note in self._call("read", name=name).result(WAIT_S)["prompts"]]

    def _call(self, do: str, **order: Any) -> Future[dict[str, Any]]:
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            number = next(self._numbers)
            self._open[number] = future
            if self._process.poll() is None and self._process.stdin:
                self._process.stdin.write(json.dumps({"id": number, "do": do, **order}) + "\n")
                self._process.stdin.flush()
                return future
        raise SideGone("A process of the benchmark ended before its time.")

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            answer = json.loads(line)
            with self._lock:
                future = self._open.pop(answer["id"])
            if "error" in answer:
                future.set_exception(SideGone(answer["error"]))
            else:
                future.set_result(answer["done"])
        with self._lock:
            for future in self._open.values():
                future.set_exception(SideGone("A process of the benchmark ended before its time."))
            self._open.clear()


def made(future: Future[dict[str, Any]], ask: Ask) -> Made:
    """What an answer became; it must have all its tokens."""
    found = Made(**future.result(WAIT_S))
    if found.output != ask.most:
        raise SideGone(f"An answer has {found.output} tokens instead of {ask.most}.")
    return found


@contextmanager
def two(model: Path, step: int) -> Iterator[tuple[Side, Side]]:
    """A machine that reads fast and one that reads slowly, a core each. Raises BenchmarkBroken."""
    cores: list[int | str] = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else ["", ""]
    if len(cores) < 2:
        raise BenchmarkBroken("Two machines need a core each; this process has only one.")
    with ExitStack() as stack:
        fast, slow = (
            stack.enter_context(_side(model, step, core, fast))
            for core, fast in ((cores[0], True), (cores[-1], False))
        )
        yield fast, slow


@contextmanager
def _side(model: Path, step: int, core: int | str, fast: bool) -> Iterator[Side]:
    command = [sys.executable, "-m", "bench.strategies.side", str(model), str(step), str(core)]
    with subprocess.Popen(
        command, env=_environment(fast), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Side(process)
        finally:
            if process.stdin:
                process.stdin.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def blas() -> str:
    """Which library multiplies matrices on either side."""
    slow = _environment(fast=False)
    if "LD_PRELOAD" not in slow:
        return "the one that mlx brings along"
    return "OpenBLAS" + (f", as for a {SLOW_CORE} on b" if "OPENBLAS_CORETYPE" in slow else "")


def _environment(fast: bool) -> dict[str, str]:
    """One thread for arithmetic; OpenBLAS where it is installed, with old instructions on the slow side."""
    made = {
        **os.environ,
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
    }
    if sys.platform == "linux" and (library := ctypes.util.find_library("openblas")):
        made["LD_PRELOAD"] = library
        if not fast and platform.machine() == "x86_64":
            made["OPENBLAS_CORETYPE"] = SLOW_CORE
    return made
