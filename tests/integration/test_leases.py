"""Claims, leases and beats on a real Redis."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from grading import queue
from grading.leases import MACHINES, MAX_DELIVERIES, Beat, Claim, Lease, Leases, connect

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


# --- two machines a round -----------------------------------------------------------------------------

BOTH = {"analysis": {}, "feedback": {}}


def beat(leases: Leases, machine: str, role: str = "primary", slots: int = 2) -> None:
    leases.beat(Beat(f"process of {machine}", machine, slots, 0, BOTH, role=role))


def asked(leases: Leases, run_id: str, machine: str, stage: str, role: str = "primary") -> Claim:
    asking = Lease(run_id, machine, f"process of {machine}", stage)
    return leases.claim(asking, "round", role=role, hand_on=True)


def test_the_second_stage_of_a_round_belongs_to_another_live_machine(leases: Leases) -> None:
    beat(leases, "one")
    assert asked(leases, "a", "one", "analysis") == GRANTED
    assert asked(leases, "f", "one", "feedback") == GRANTED  # there is no other
    beat(leases, "two", "spare")
    leases.give_back("f")
    assert asked(leases, "f", "one", "feedback") == Claim("elsewhere", "two")
    # what was handed on to a machine counts as its own at once
    assert asked(leases, "a2", "two", "analysis", "spare") == Claim("elsewhere", "one")


def test_it_goes_to_the_machine_with_most_room(leases: Leases) -> None:
    for name in ("one", "two", "three"):
        beat(leases, name)
    for run_id, machine in (("x", "two"), ("y", "two"), ("z", "three")):
        leases.claim(Lease(run_id, machine, "p", "analysis"), f"round of {run_id}")
    assert asked(leases, "a", "one", "analysis") == GRANTED
    assert asked(leases, "f", "one", "feedback") == Claim("elsewhere", "three")


def test_a_dead_machine_gets_nothing(leases: Leases) -> None:
    beat(leases, "one")
    beat(leases, "two")
    row = json.loads(leases.redis.hget(MACHINES, "process of two"))
    leases.redis.hset(MACHINES, "process of two", json.dumps({**row, "at": row["at"] - 11}))
    assert asked(leases, "a", "one", "analysis") == GRANTED
    assert asked(leases, "f", "one", "feedback") == GRANTED


def test_a_spare_leaves_a_run_to_an_idle_primary_machine_only(leases: Leases) -> None:
    beat(leases, "first")
    beat(leases, "spare", "spare")
    assert asked(leases, "a", "spare", "analysis", "spare") == Claim("elsewhere", "first")
    # it is on its way there, so the primary machine is not idle for the next one
    next_one = Lease("c", "spare", "p", "analysis")
    assert leases.claim(next_one, "third round", role="spare", hand_on=True) == GRANTED
    assert leases.claim(Lease("a", "first", "p", "analysis"), "round") == GRANTED
    other = Lease("b", "spare", "p", "analysis")
    assert leases.claim(other, "another round", role="spare", hand_on=True) == GRANTED


def test_stages_of_one_round_asked_for_at_once_are_parted(leases: Leases) -> None:
    beat(leases, "one")
    beat(leases, "two")
    together = threading.Barrier(2)
    answers: list[str] = []

    def ask(stage: str) -> None:
        together.wait()
        answers.append(asked(leases, stage, "one", stage).answer)

    threads = [threading.Thread(target=ask, args=(stage,)) for stage in BOTH]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == ["elsewhere", "granted"]
