"""A machine is taken out and back, and one that is told to end too soon hands its work to others."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from tests.faults.harness.cluster import cluster
from tests.faults.harness.ledger import Known, Verdict, known_runs
from tests.faults.harness.machines import MachineSpec

MACHINES = (MachineSpec("one"), MachineSpec("two"), MachineSpec("slow", seconds=30, grace_s=1))


@dataclass(frozen=True)
class Outcome:
    """What came of draining `two`, and of ending `slow` in the middle of its work."""

    ended_s: float
    code: int
    in_hand: set[str]
    runs_then: list[Known]
    said: str
    drained_runs: list[Known]
    back_runs: list[Known]
    verdict: Verdict


def play(folder: Path, database_url: str) -> Outcome:
    """First the slow one ends, then another is drained and comes back."""
    with cluster(folder, MACHINES, database_url) as running:
        running.submitted(["a", "b", "c", "d"])
        in_hand = running.until_busy("slow", 1)
        begun = time.monotonic()
        code = running.stop("slow").wait(60)
        ended_s = time.monotonic() - begun
        running.until_all_end(90)
        runs_then = known_runs(running.store)
        said = running.grader("drain", "two", "--why", "a new disk")
        running.submitted(["e", "f"])
        running.until_all_end(90)
        drained_runs = known_runs(running.store)[len(runs_then) :]
        before = len(runs_then) + len(drained_runs)
        running.grader("drain", "two", "--back")
        running.submitted(["g", "h"])
        verdict = running.until_all_end(90)
        back_runs = known_runs(running.store)[before:]
        return Outcome(ended_s, code, in_hand, runs_then, said, drained_runs, back_runs, verdict)


def test_what_is_not_done_within_the_grace_goes_to_others_at_once(outcome: Outcome) -> None:
    assert outcome.code == 0
    assert 1 <= outcome.ended_s < 25  # its answers take 30 s
    handed_back = [run for run in outcome.runs_then if run.id in outcome.in_hand]
    # the same runs, by others; what was only on its way to it may have been sent again
    assert all(run.accepted and run.machine in ("one", "two") for run in handed_back)
    assert {run.attempt for run in handed_back} == {1}


def test_a_drained_machine_gets_nothing_until_it_is_back(outcome: Outcome) -> None:
    assert "two is drained" in outcome.said
    assert {run.machine for run in outcome.drained_runs} == {"one"}
    assert {run.machine for run in outcome.back_runs} == {"one", "two"}
    assert outcome.verdict.clean, outcome.verdict
