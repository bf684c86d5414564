"""Claims, leases and beats on a real Redis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from grading import queue
from grading.leases import MAX_DELIVERIES, Beat, Claim, Lease, Leases, connect

GRANTED, SUPERSEDED = Claim("granted"), Claim("superseded")


@pytest.fixture
def leases(redis_url: str) -> Iterator[Leases]:
    client = connect(redis_url)
    yield Leases(client)
    client.close()


def lease(run_id: str = "run", process: str = "p1") -> Lease:
    return Lease(run_id, "dgx-spark-1", process, "analysis")


def test_a_run_is_granted_once_while_it_is_held(leases: Leases) -> None:
    leases.make_current({("round", "analysis"): "run"})
    assert leases.claim(lease(), "round") == GRANTED
    assert leases.claim(lease(process="p2"), "round") == SUPERSEDED
    held = leases.held_of(["run", "other"])
    assert set(held) == {"run"}
    assert (held["run"].machine, held["run"].process) == ("dgx-spark-1", "p1")


def test_an_older_run_is_superseded_by_the_current_one(leases: Leases) -> None:
    leases.make_current({("round", "analysis"): "newer"})
    assert leases.claim(lease("older"), "round") == SUPERSEDED
    assert leases.claim(lease("newer"), "round") == GRANTED


def test_an_emptied_redis_grants(leases: Leases) -> None:
    assert leases.claim(lease(), "round") == GRANTED


def test_a_job_that_kills_its_worker_is_exhausted(leases: Leases) -> None:
    answers = []
    for _ in range(MAX_DELIVERIES + 1):
        answers.append(leases.claim(lease(), "round").answer)
        leases.give_back("run")
    assert answers == ["granted"] * MAX_DELIVERIES + ["exhausted"]


def test_progress_is_seen_and_only_a_held_lease_is_renewed(leases: Leases) -> None:
    leases.claim(lease(), "round")
    assert leases.progress("run", "generating", 42)
    assert leases.held()[0].tokens == 42
    assert leases.held()[0].phase == "generating"
    leases.give_back("run")
    assert not leases.progress("run", "generating", 43)
    assert leases.held() == []


def test_beats_carry_what_a_machine_is(leases: Leases) -> None:
    stages = {"analysis": {"engine": "ollama", "model": "qwen3-coder:30b"}}
    leases.beat(Beat("p1", "dgx-spark-1", 8, 3, stages))
    beat = leases.beats()[0]
    assert (beat.machine, beat.slots, beat.busy, beat.stages) == ("dgx-spark-1", 8, 3, stages)
    assert beat.alive
    assert beat.age_s < 5
    leases.leave("p1")
    assert leases.beats() == []


def test_messages_are_seen_by_their_run(leases: Leases, redis_url: str) -> None:
    app = queue.celery_app(redis_url, 1200)
    app.send_task(queue.RUN, kwargs={"job": {}}, queue="analysis.batch", task_id="run")
    queues = queue.stage_queues(["analysis", "feedback"])
    assert leases.waiting(queues) == {"run"}
    assert leases.lengths(queues) == {"analysis": 0, "feedback": 0, "analysis.batch": 1, "feedback.batch": 0}
    assert leases.handed_out() == set()
    app.close()
