"""One machine's process when messages come twice, work is handed back, or a run was begun too often."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from grading.broker.heartbeats import Claim
from grading.broker.leases import MAX_DELIVERIES, Leases
from grading.domain.jobs import Job, Provenance, Result
from tests.integration.machine.test_process import MACHINE, Scripted, engine, job, leases, process, sent
from tests.support.system import until
from workers.machine import results
from workers.machine.active_run import Message
from workers.machine.engines.base import Progress, Request
from workers.machine.worker import MachineProcess

__all__ = ["engine", "leases", "process", "sent"]


def test_a_message_that_comes_again_does_not_hide_the_run_that_is_under_way(
    process: MachineProcess, leases: Leases, engine: Scripted
) -> None:
    """Redis gives a message out again after the visibility timeout, perhaps to the same machine."""
    seen: list[int] = []

    def again(_request: Request, _progress: Progress) -> None:
        assert process.run(job()) == {"superseded": "run"}
        process.heartbeat()
        seen.append(leases.heartbeats()[0].busy)

    engine.before = again
    process.run(job())
    assert seen == [1]


def test_a_run_that_was_begun_too_often_ends_also_when_it_must_wait(
    process: MachineProcess, leases: Leases, engine: Scripted, sent: list[Mapping[str, Any]]
) -> None:
    leases.redis.set(f"grader:deliveries:{MACHINE.name}:suspect", MAX_DELIVERIES)
    leases.make_current({("round", "feedback"): "suspect"})

    def beside(request: Request, _progress: Progress) -> None:
        if request.job.run_id == "run":
            process.run(job("suspect", "feedback", alone=True))

    engine.before = beside
    worker = threading.Thread(target=process.run, args=(job(),), daemon=True)
    worker.start()
    worker.join(60)
    assert not worker.is_alive()
    assert [(one["run_id"], one["error"]) for one in sent] == [("suspect", "exhausted"), ("run", None)]


def test_all_that_is_handed_back_leaves_at_once(
    process: MachineProcess, leases: Leases, engine: Scripted
) -> None:
    """A sweeper that looks in between must see neither a dead machine nor leases of one."""
    go_on, states, begun = threading.Event(), list[tuple[int, int]](), list[int]()

    def resend(_to: str) -> None:
        states.append((len(leases.held()), len(leases.heartbeats())))

    def wait(_request: Request, _progress: Progress) -> None:
        begun.append(1)
        assert go_on.wait(60)

    engine.before = wait
    process.heartbeat()
    threads = [
        threading.Thread(
            target=process.run, args=({**job(name), "round_id": name}, Message("analysis", resend))
        )
        for name in ("a", "b", "c")
    ]
    for thread in threads:
        thread.start()
    until(lambda: len(begun) == len(leases.held()) == 3, 30, "all are taken")
    assert process.hand_back() == 3
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert states == [(0, 0)] * 3


def test_a_run_that_was_begun_too_often_is_not_taken_for_one_that_was_taken_away(
    process: MachineProcess,
    leases: Leases,
    sent: list[Mapping[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has no lease, which the heartbeat may find out before its result is sent."""
    leases.redis.set(f"grader:deliveries:{MACHINE.name}:run", MAX_DELIVERIES)
    leases.make_current({("round", "analysis"): "run"})
    made = results.exhausted

    def beaten(given: Job, how: Provenance) -> Result:
        process.heartbeat()
        return made(given, how)

    monkeypatch.setattr(results, "exhausted", beaten)
    returned = process.run(job())
    assert [one["error"] for one in sent] == ["exhausted"]
    assert returned is not None
    assert returned["error"] == "exhausted"


def test_a_run_counts_as_in_hand_while_it_is_claimed(
    process: MachineProcess, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the consumer takes one more than the machine's best number in that moment."""
    seen: list[Mapping[str, int]] = []
    claim = leases.claim

    def claimed(*args: Any, **options: Any) -> Claim:
        seen.append(process.in_hand())
        return claim(*args, **options)

    monkeypatch.setattr(leases, "claim", claimed)
    process.run(job())
    assert (seen, process.in_hand()) == ([{"analysis": 1}], {})
