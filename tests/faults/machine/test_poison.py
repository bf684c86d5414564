"""A submission that ends every worker it meets: dead after three losses, its neighbours pay nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import select

from grading.store.tables import Round, RoundStage
from tests.faults.harness.cluster import Cluster, cluster
from tests.faults.harness.ledger import Known, Verdict, known_runs
from tests.faults.harness.machines import MachineSpec
from tests.support.system import until

POISON = "this-ends-the-process"
MACHINES = tuple(MachineSpec(name, slots=6, seconds=6.0, exits_on=POISON) for name in ("one", "two"))
NEIGHBOURS = [f"neighbour-{number}" for number in range(4)]


@dataclass(frozen=True)
class Spent:
    """What a stage cost."""

    state: str
    tries: int
    error: str | None
    losses: int


@dataclass(frozen=True)
class Outcome:
    """What came of one poisonous submission among sound ones."""

    poisoned: str
    """Its round."""
    neighbours: list[str]
    """Rounds."""
    beside: set[str]
    """Runs of neighbours that died with it the first time."""
    deaths: list[tuple[str, int]]
    spent: dict[str, list[Spent]]
    """round -> its stages"""
    runs: list[Known]
    verdict: Verdict
    replayed: Verdict
    """After the machines were mended and the operator had it tried again."""


def play(folder: Path, database_url: str) -> Outcome:
    """The poison comes while both machines work on its neighbours."""
    with cluster(folder, MACHINES, database_url) as running:
        submissions = running.submitted(NEIGHBOURS)
        running.until_all_busy({machine.name: 1 for machine in MACHINES})
        poisoned = running.ledger.submit("poison", POISON)
        until(lambda: running.deaths, 90, "a worker dies")
        verdict = running.until_all_end(240)
        return replace(
            outcome_of(running, poisoned, submissions, verdict), replayed=mended(running, poisoned)
        )


def mended(running: Cluster, poisoned: str) -> Verdict:
    """What comes of `grader replay` with engines that do not crash any more."""
    config = running.site.folder / "config.toml"
    config.write_text(config.read_text().replace(f', exits_on = "{POISON}"', ""))
    for name in running.machines:
        running.kill(name)
        running.start(name)
    running.grader("replay", poisoned)
    return running.until_all_end(90)


def outcome_of(running: Cluster, poisoned: str, neighbours: list[str], verdict: Verdict) -> Outcome:
    with running.store.read() as session:
        rounds = dict(session.execute(select(Round.submission_id, Round.id)).all())
        spent: dict[str, list[Spent]] = {}
        for stage in session.scalars(select(RoundStage)):
            spent.setdefault(stage.round_id, []).append(
                Spent(stage.state, stage.tries, stage.error, stage.losses)
            )
    runs = known_runs(running.store)
    mine = [rounds[submission] for submission in neighbours]
    beside = {run.id for run in runs if run.round_id in mine and not run.answered}
    return Outcome(
        poisoned=rounds[poisoned],
        neighbours=mine,
        beside=beside,
        deaths=list(running.deaths),
        spent=spent,
        runs=runs,
        verdict=verdict,
        replayed=verdict,
    )


def test_poison_is_dead_after_three_runs_a_stage(outcome: Outcome) -> None:
    print(f"workers died: {outcome.deaths}")
    print(sorted((run.round_id == outcome.poisoned, run.stage, run.state) for run in outcome.runs))
    assert [spent.state for spent in outcome.spent[outcome.poisoned]] == ["dead", "dead"]
    assert all(2 <= spent.losses <= 3 for spent in outcome.spent[outcome.poisoned])
    for stage in ("analysis", "feedback"):
        # those count, too, that waited for their turn when the other stage ended the process
        sent = [run for run in outcome.runs if (run.round_id, run.stage) == (outcome.poisoned, stage)]
        assert 2 <= len(sent) <= 6
        assert not any(run.answered for run in sent)


def test_neighbours_of_poison_pay_nothing(outcome: Outcome) -> None:
    assert outcome.beside, "no neighbour died with it"
    for round_id in outcome.neighbours:
        assert [(spent.state, spent.tries) for spent in outcome.spent[round_id]] == [("done", 1)] * 2
    assert outcome.verdict.states == {"graded": len(NEIGHBOURS), "failed": 1}
    assert outcome.verdict.clean, outcome.verdict


def test_replay_brings_poison_back_once_the_machines_are_mended(outcome: Outcome) -> None:
    assert outcome.verdict.ungraded != []
    assert outcome.replayed.states == {"graded": len(NEIGHBOURS) + 1}
    assert outcome.replayed.clean, outcome.replayed
