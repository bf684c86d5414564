"""Machines die, stand still, are cut off or have a wrong clock: others take over, nothing counts twice."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import select

from grading.domain.round_states import RunState
from grading.store import Store
from grading.store.tables import Grade
from tests.faults.harness.cluster import Cluster, cluster
from tests.faults.harness.ledger import Known, TakeOver, Verdict, known_runs, moment, take_overs
from tests.faults.harness.machines import MachineSpec
from tests.support.system import until

KILLED, STOPPED, CUT = "killed", "stopped", "cut"
GONE = (KILLED, STOPPED, CUT)
LONG_S, SHORT_S = 20.0, 1.0
"""An answer of the machines that go, and of those that take over."""
SLOTS = 8
"""Of each machine that takes over."""
MACHINES = (
    MachineSpec(KILLED, slots=8, seconds=LONG_S),
    MachineSpec(STOPPED, slots=2, seconds=LONG_S),
    MachineSpec(CUT, slots=2, seconds=LONG_S, behind_proxy=True),
    # these take over, and their clocks are off
    MachineSpec("fast-clock", slots=SLOTS, seconds=SHORT_S, clock="+1h"),
    MachineSpec("slow-clock", slots=SLOTS, seconds=SHORT_S, clock="-1h"),
)
MOST = 80
"""Submissions; no more come in once all slots are busy. So many that slow machines are not left idle."""


@dataclass(frozen=True)
class Outcome:
    """What came of losing three machines at once."""

    lost: dict[str, set[str]]
    """machine -> the runs it worked on"""
    taken_over: dict[str, list[TakeOver]]
    before: list[str]
    """The grades when everything was graded, before two of the machines came back."""
    after: list[str]
    verdict: Verdict
    runs: list[Known]

    def known(self, machines: tuple[str, ...]) -> list[Known]:
        """The runs these machines lost."""
        ids = set().union(*(self.lost[name] for name in machines))
        return [run for run in self.runs if run.id in ids]


def play(folder: Path, database_url: str, later_s: float = 0.0) -> Outcome:
    """Three machines go at the same moment, with all their slots busy; two come back when all is graded.

    `later_s` shifts that moment against the sweeper and the heartbeats.
    """
    with cluster(folder, MACHINES, database_url) as running:
        time.sleep(later_s)
        uploads = running.submit([f"s-{number}" for number in range(MOST)])
        running.until_all_busy({machine.name: machine.slots for machine in MACHINES[:3]}, 90)
        uploads = [upload for upload in uploads if not upload.cancel()]
        running.kill(KILLED)
        running.freeze(STOPPED)
        running.proxies[CUT].cut()
        fault = moment()
        lost = {name: {lease.run_id for lease in running.held_by(name)} for name in GONE}
        for upload in uploads:
            upload.result()
        verdict = running.until_all_end(120)
        before = grades(running.store)
        await_late_work(running, lost[CUT])
        running.thaw(STOPPED)
        running.proxies[CUT].heal()
        await_answers(running, lost[CUT])
        running.until_idle(STOPPED)
        taken = {name: take_overs(running.store, fault, runs) for name, runs in lost.items()}
        return Outcome(lost, taken, before, grades(running.store), verdict, known_runs(running.store))


def await_late_work(running: Cluster, late: set[str]) -> None:
    """Wait until the machine that is cut off has done these runs; before that it would be told to stop."""
    log = running.site.folder / f"{CUT}.log"

    def done() -> bool:
        said = [line for line in log.read_text().splitlines() if ": done after" in line]
        return all(any(f"run {run}," in line for line in said) for run in late)

    until(done, LONG_S + 20, f"the late work; log in {log}")


def await_answers(running: Cluster, late: set[str], timeout_s: float = 40) -> None:
    """Wait until the results of these runs have come in after all."""

    def heard() -> bool:
        return all(run.answered for run in known_runs(running.store) if run.id in late)

    until(heard, timeout_s, f"the late results; logs in {running.site.folder}")


def grades(store: Store) -> list[str]:
    """Every grade, whole."""
    with store.read() as session:
        rows = session.execute(select(Grade.__table__).order_by(Grade.id))
        return [str(tuple(row)) for row in rows]


@pytest.mark.parametrize(("machine", "within_s"), [(KILLED, 30.0), (STOPPED, 75.0), (CUT, 60.0)])
def test_all_runs_of_a_lost_machine_are_taken_over(outcome: Outcome, machine: str, within_s: float) -> None:
    taken = outcome.taken_over[machine]
    sent = sorted(one.sent_s for one in taken)
    begun = sorted(one.begun_s for one in taken if one.begun_s is not None)
    print(f"{machine}: sent again after {rounded(sent)} s, begun again after {rounded(begun)} s")
    slots = next(one.slots for one in MACHINES if one.name == machine)
    # the first of them may have ended by itself before the machine was lost
    assert 0 < len(outcome.lost[machine]) == len(sent) == len(begun) <= slots
    assert sent[-1] <= within_s
    # what came before them has its turn first, on the machines that are left
    assert begun[-1] <= within_s + 60


def rounded(seconds: list[float]) -> list[float]:
    return [round(one, 1) for one in seconds]


def test_nothing_is_lost_or_graded_twice_when_three_machines_go(outcome: Outcome) -> None:
    assert outcome.verdict.clean, outcome.verdict
    assert outcome.verdict.states == {"graded": outcome.verdict.accepted}


def test_late_results_are_recorded_as_duplicates_and_change_nothing(outcome: Outcome) -> None:
    assert [run.state for run in outcome.known((CUT,))] == [RunState.DUPLICATE] * 2
    # one that wakes up sends what it has, or hears first that it was taken away
    states = [run.state for run in outcome.known((STOPPED,))]
    assert len(states) == 2
    assert set(states) <= {RunState.DUPLICATE, RunState.LOST}
    assert outcome.after == outcome.before


def test_machines_with_a_wrong_clock_do_nothing_twice(outcome: Outcome) -> None:
    """Only what a lost machine worked on was answered a second time, and by nobody a third time.

    A busy computer may keep a machine from sending heartbeats for 10 s: what it had in hand then is done
    again, as it must be. A wrong clock would do that to most of its runs.
    """
    answers = Counter((run.round_id, run.stage) for run in outcome.runs if run.answered)
    late = {(run.round_id, run.stage) for run in outcome.known((STOPPED, CUT)) if run.answered}
    assert set(answers.values()) == {1, 2}
    twice = {stage for stage, count in answers.items() if count == 2}
    again = [run for run in outcome.runs if (run.round_id, run.stage) in twice - late]
    assert late <= twice
    assert len(twice - late) <= SLOTS, again
    assert {run.state for run in again} <= {RunState.DONE, RunState.DUPLICATE}, again
    took = Counter(run.machine for run in outcome.runs if run.accepted)
    assert min(took["fast-clock"], took["slow-clock"]) >= 3 * SLOTS
