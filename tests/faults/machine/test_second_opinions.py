"""The machine that gives second opinions dies, and the store worker: grades come first, opinions later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select

from grading.domain.permissions import Actor
from grading.domain.second_opinions import SecondOpinionPolicy
from grading.domain.stages import SECOND_OPINION
from grading.store import Store
from grading.store.tables import Assignment, Grade, Round, SecondOpinion
from grading.store.trust import second_opinions
from tests.faults.harness.cluster import cluster
from tests.faults.harness.ledger import Known, Verdict, known_runs
from tests.faults.harness.machines import MachineSpec
from tests.support.system import until

MACHINES = (
    MachineSpec("one", model="qwen3:30b"),
    MachineSpec("two", slots=8, seconds=4, stages=(SECOND_OPINION,), model="gemma3:27b"),
)


@dataclass(frozen=True)
class Outcome:
    """What came of it."""

    verdict: Verdict
    in_hand: set[str]
    """Runs that died with their machine."""
    states_then: Mapping[str, int]
    """Of second opinions, when all was graded without the machine."""
    runs: list[Known]
    states: Mapping[str, int]
    current: int
    released: int
    """Grades that were released before their second opinion came, which differs."""
    held: int


def play(folder: Path, database_url: str) -> Outcome:
    """Two are graded, the machine of second opinions dies at work, one more is graded; then it is back."""
    with cluster(folder, MACHINES, database_url) as running:
        store = running.store
        with store.write() as session:
            assignment = session.scalars(select(Assignment)).one()
            policy = SecondOpinionPolicy(which="all")
            second_opinions.set_policy(session, assignment, policy, Actor(user_id=1))
        running.submitted(["a", "b"])
        in_hand = running.until_busy("two", 2)
        running.kill("two")
        running.submitted(["c"])
        until(lambda: graded(store) == 3, 90, f"all are graded; logs in {folder}")
        states_then = states(store)
        running.start("two")
        running.until_busy("two", 1)
        running.kill("store")  # results wait for it
        running.start("store")
        until(lambda: states(store).get("done") == 6, 120, f"all opinions come; logs in {folder}")
        verdict = running.until_all_end(90)
        with store.read() as session:
            current = session.scalars(select(Round.id).where(Round.current)).all()
            released = second_opinions.count_differing(session, 1, released=True)
            held = session.scalars(select(Grade.held)).all()
        return Outcome(
            verdict, in_hand, states_then, known_runs(store), states(store), len(current), released, sum(held)
        )


def graded(store: Store) -> int:
    """How many rounds that count are graded."""
    with store.read() as session:
        return len(session.scalars(select(Round.id).where(Round.current, Round.state == "graded")).all())


def states(store: Store) -> Mapping[str, int]:
    """How many second opinions are in which state."""
    with store.read() as session:
        return Counter(session.scalars(select(SecondOpinion.state)))


def test_no_grade_waits_for_a_second_opinion(outcome: Outcome) -> None:
    assert outcome.verdict.clean, outcome.verdict
    assert outcome.verdict.states == {"graded": 3}
    assert outcome.states_then.get("done", 0) == 0
    assert outcome.current == 3


def test_those_that_died_with_their_machine_come_later_and_once(outcome: Outcome) -> None:
    assert outcome.states == {"done": 6}
    opinions = [run for run in outcome.runs if run.stage == SECOND_OPINION]
    assert Counter(run.round_id for run in opinions if run.accepted) == dict.fromkeys(
        {run.round_id for run in opinions}, 1
    )
    assert {run.state for run in opinions if run.id in outcome.in_hand} == {"lost"}
    assert all(run.machine == "two" for run in opinions if run.accepted)


def test_one_that_differs_from_what_is_released_is_told(outcome: Outcome) -> None:
    """Grades of this assignment are released at once; the checks give code the highest level."""
    assert (outcome.held, outcome.released) == (0, 3)
