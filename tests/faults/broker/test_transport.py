"""Redis dies, forgets, is full and delivers everything several times: SQL is the truth."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import select

from grading.store import Store
from grading.store.tables import Run
from tests.faults.harness.broker import Duplicator
from tests.faults.harness.cluster import Cluster, cluster
from tests.faults.harness.ledger import Verdict
from tests.faults.harness.machines import MachineSpec

MACHINES = (MachineSpec("one", slots=2, seconds=1.5), MachineSpec("two", slots=2, seconds=1.5))
UPLOAD_S = 10.0
"""Longest wait for a 2xx while Redis is no help."""


@dataclass
class Outcome:
    """What was done and what came of it."""

    copies: dict[str, int] = field(default_factory=dict)
    """run or task id -> copies of its message"""
    run_ids: set[str] = field(default_factory=set)
    accepted_while: dict[str, list[float]] = field(default_factory=dict)
    """fault -> seconds each upload took meanwhile"""
    flushed: set[str] = field(default_factory=set)
    """Runs under way when Redis was emptied."""
    verdict: Verdict | None = None


def play(folder: Path, database_url: str) -> Outcome:
    """One fault after the other, always with work under way; nobody waits for the recovery in between."""
    done = Outcome()
    with cluster(folder, MACHINES, database_url) as running:
        deliver_everything_several_times(running, done)
        running.broker.fill()
        done.accepted_while["full"] = accepted(running, "full")
        running.broker.empty()
        running.broker.crash()
        done.accepted_while["dead"] = accepted(running, "dead")
        running.broker.start()
        running.submitted(names("flushed"))
        done.flushed = running.until_busy("one", 1)
        running.broker.forget_everything()
        done.verdict = running.until_all_end(120)
    return done


def names(fault: str, count: int = 8) -> list[str]:
    return [f"{fault}-{number}" for number in range(count)]


def deliver_everything_several_times(running: Cluster, done: Outcome) -> None:
    with Duplicator(running.broker.url, seed=1) as duplicator:
        running.submitted(names("copied", 10))
        running.until_all_end(90)
    done.copies, done.run_ids = dict(duplicator.copies), run_ids(running.store)


def run_ids(store: Store) -> set[str]:
    with store.read() as session:
        return set(session.scalars(select(Run.id)))


def accepted(running: Cluster, fault: str) -> list[float]:
    """Seconds each of these uploads takes now."""
    before = len(running.ledger.waits)
    running.submitted(names(fault, 6))
    return running.ledger.waits[before:]


def test_every_message_is_delivered_two_to_five_times_and_counts_once(outcome: Outcome) -> None:
    assert len(outcome.run_ids) >= 20
    assert outcome.run_ids <= set(outcome.copies)
    assert len(outcome.copies) >= 10 + 2 * len(outcome.run_ids)  # what prepares and records, as well


def test_uploads_are_accepted_while_redis_is_full_or_dead(outcome: Outcome) -> None:
    for waits in outcome.accepted_while.values():
        print(f"accepted after {[round(wait, 2) for wait in sorted(waits)]} s")
        assert len(waits) == 6
        assert max(waits) <= UPLOAD_S


def test_whatever_redis_does_everything_accepted_is_graded_once(outcome: Outcome) -> None:
    assert outcome.flushed
    assert outcome.verdict is not None
    assert outcome.verdict.clean, outcome.verdict
    assert outcome.verdict.states == {"graded": 10 + 6 + 6 + 8}
