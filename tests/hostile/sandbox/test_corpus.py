"""Every hostile program in the real sandbox: none reaches anything, each ends in time and scores right."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.hostile.sandbox.arena import EXPECTED, GRACE_S, Arena, Bound, Outcome, Program, arena, corpus
from tests.hostile.sandbox.bait import descendants
from workers.sandbox.backends import open_backend
from workers.sandbox.backends.bubblewrap import Bubblewrap

CORPUS = corpus()
AT_ONCE = 2
NEIGHBOUR = Program(
    name="neighbour",
    files={
        "basket.py": "def total(xs):\n    return sum(xs)\n\n\nprint(sum(n * n for n in range(100_000)))\n"
    },
    tries="nothing: it is a student's beside the others",
    ends=("finished",),
    cases=Bound(1),
    tests=Bound(1),
    limit_s=None,
)
FIRST = ("r_frames", "r_patch_testthat", "notebook_failing_cells")
"""Their fork servers are there from the start; else the first of a kind start their interpreters."""
CELL_S = 0.6
"""Of a cell from which nothing is earned."""
REST_S = 4.0
"""Between two runs of the neighbour."""
_BECOME_SUBREAPER = 36


@dataclass
class Stage:
    """The corpus while it runs."""

    arena: Arena
    futures: dict[str, Future[Outcome]]
    before: set[int]
    alone_s: float
    neighbours: list[Outcome] = field(default_factory=list)
    watched: threading.Thread | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    def all_through(self) -> list[Outcome]:
        """Wait for the last one."""
        return [future.result() for future in self.futures.values()]

    def start_neighbour(self) -> None:
        """Run the innocent one again and again in a thread."""
        self.watched = threading.Thread(target=self._watch_neighbour, name="neighbour")
        self.watched.start()

    def stop_neighbour(self) -> None:
        """Wait for its last run."""
        self.stop.set()
        if self.watched is not None:
            self.watched.join()

    def _watch_neighbour(self) -> None:
        while not self.stop.wait(REST_S):
            self.neighbours.append(self.arena.run(NEIGHBOUR))


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Starts the programs that were selected, two at a time; tests wait for theirs."""
    chosen = [
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.originalname == "test_program"
    ]
    # what a sandbox leaves behind becomes a child of this process, where it is seen
    assert ctypes.CDLL(None).prctl(_BECOME_SUBREAPER, 1, 0, 0, 0) == 0
    before = descendants()
    with arena(open_backend("bubblewrap"), CELL_S) as place, ThreadPoolExecutor(AT_ONCE + 1) as pool:
        before |= descendants()
        for program in (NEIGHBOUR, *(CORPUS[name] for name in FIRST if name in chosen)):
            place.warm(program)
        alone = place.run(NEIGHBOUR)
        futures = {name: pool.submit(place.run, CORPUS[name]) for name in chosen}
        found = Stage(place, futures, before, alone.seconds, [alone])
        found.start_neighbour()
        try:
            yield found
        finally:
            for future in futures.values():
                future.cancel()
            found.stop_neighbour()
    ctypes.CDLL(None).prctl(_BECOME_SUBREAPER, 0, 0, 0, 0)


def test_corpus_is_large() -> None:
    assert len(CORPUS) >= 70
    assert sum(program.language == "r" for program in CORPUS.values()) >= 12


@pytest.mark.parametrize("name", CORPUS)
def test_program(name: str, stage: Stage) -> None:
    outcome = stage.futures[name].result()
    program, work = outcome.program, outcome.work
    assert outcome.reached == ()
    assert "\\u0000" not in work.model_dump_json()
    assert not any(str(EXPECTED) in output.text for cell in work.cells for output in cell.outputs)
    assert outcome.seconds <= program.seconds + GRACE_S
    assert work.end in program.ends, work.reason
    assert program.cases.holds(outcome.share("cases")), (outcome.share("cases"), work.answers)
    if program.tests is not None:
        assert program.tests.holds(outcome.share("tests")), (outcome.share("tests"), work.tests)


def test_nothing_outside_was_touched(stage: Stage) -> None:
    stage.all_through()
    assert stage.arena.bait.harm() == []


def test_neighbours_were_not_disturbed(stage: Stage) -> None:
    stage.all_through()
    for outcome in stage.neighbours:
        assert (outcome.work.end, outcome.share("cases"), outcome.share("tests")) == ("finished", 1, 1)
    slowest = max(outcome.seconds for outcome in stage.neighbours)
    assert slowest < 5 * stage.alone_s + 10, f"{slowest:.1f} s beside the others, {stage.alone_s:.1f} s alone"


def test_no_process_is_left(stage: Stage) -> None:
    stage.all_through()
    sandbox = stage.arena.sandbox
    assert isinstance(sandbox, Bubblewrap)
    stage.stop_neighbour()
    sandbox.fork_servers.close()  # they stay for the next work, and end with their sandbox
    until = time.monotonic() + 60
    left = descendants() - stage.before
    while left and time.monotonic() < until:
        _reap_orphans()  # a PID namespace ends only after all of its processes were waited for
        time.sleep(0.1)
        left &= descendants()
    assert left == set(), [_command(pid) for pid in left]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def _reap_orphans() -> None:
    """Wait for every child that has ended: as their subreaper, this process adopts what a sandbox leaves."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


def teardown_module() -> None:
    """No zombie stays for the tests that follow."""
    _reap_orphans()
