"""Workers restarted under load, as a deploy does it, finish what they work on; nothing is done twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.faults.harness.cluster import cluster
from tests.faults.harness.ledger import Known, Verdict, known_runs
from tests.faults.harness.machines import MachineSpec

MACHINES = (MachineSpec("one", slots=4, seconds=1.5), MachineSpec("two", slots=4, seconds=1.5))
COUNT = 16


@dataclass(frozen=True)
class Outcome:
    """What came of restarting both machines, one after the other."""

    in_hand: dict[str, set[str]]
    """machine -> runs it worked on when it was told to end"""
    codes: dict[str, int]
    """Exit statuses."""
    verdict: Verdict
    runs: list[Known]


def play(folder: Path, database_url: str) -> Outcome:
    """SIGTERM and a new start for each machine, with all its slots busy."""
    in_hand, codes = {}, {}
    with cluster(folder, MACHINES, database_url) as running:
        uploads = running.submit([f"s-{number}" for number in range(COUNT)])
        for machine in MACHINES:
            in_hand[machine.name] = running.until_busy(machine.name, machine.slots)
            codes[machine.name] = running.stop(machine.name).wait(60)
            running.start(machine.name)
        for upload in uploads:
            upload.result()
        verdict = running.until_all_end(90)
        return Outcome(in_hand, codes, verdict, known_runs(running.store))


def test_a_worker_told_to_end_finishes_what_it_works_on(outcome: Outcome) -> None:
    assert outcome.codes == {"one": 0, "two": 0}
    for name, runs in outcome.in_hand.items():
        assert len(runs) == 4
        assert {(run.machine, run.accepted) for run in outcome.runs if run.id in runs} == {(name, True)}


def test_a_restart_under_load_does_nothing_twice(outcome: Outcome) -> None:
    answers = Counter((run.round_id, run.stage) for run in outcome.runs if run.answered)
    assert len(answers) == 2 * COUNT
    assert set(answers.values()) == {1}
    assert outcome.verdict.clean, outcome.verdict
    assert outcome.verdict.states == {"graded": COUNT}
