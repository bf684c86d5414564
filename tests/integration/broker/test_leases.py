"""Claims, leases and heartbeats on a real Redis."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import TimeoutError as RedisTimeout

from grading.broker import celery_app
from grading.broker.connections import connect
from grading.broker.dispatch import Dispatch
from grading.broker.heartbeats import Claim, Heartbeat, Lease
from grading.broker.leases import HEARTBEATS, LEASES, MAX_DELIVERIES, Leases
from grading.broker.machine_status import MachineState, condition, peer
from grading.config.settings import load
from tests.support.system import until

HERE = "dgx-spark-1"
GRANTED, SUPERSEDED = Claim("granted"), Claim("superseded")


@pytest.fixture
def leases(redis_url: str) -> Iterator[Leases]:
    client = connect(redis_url)
    yield Leases(client)
    client.close()


def lease(run_id: str = "run", process: str = "p1", **other: Any) -> Lease:
    return Lease(run_id, HERE, process, "analysis", round_id="round", **other)


def test_a_run_is_granted_once_while_it_is_held(leases: Leases) -> None:
    leases.make_current({("round", "analysis"): "run"})
    assert leases.claim(lease(), "round") == GRANTED
    assert leases.claim(lease(process="p2"), "round") == SUPERSEDED
    held = leases.held_of(["run", "other"])
    assert set(held) == {"run"}
    assert (held["run"].machine, held["run"].process) == ("dgx-spark-1", "p1")


def test_an_answer_that_was_lost_on_the_way_costs_no_run(
    leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client asks again by itself; "superseded" would leave a lease that nobody works on."""
    lost: list[object] = []
    read = Redis.parse_response

    def lose(self: Redis, connection: Any, command: str, **options: Any) -> Any:
        answer = read(self, connection, command, **options)
        if command == "EVALSHA" and not lost:
            lost.append(answer)
            raise RedisTimeout
        return answer

    leases.claim(lease("warm"), "warm")
    monkeypatch.setattr(Redis, "parse_response", lose)
    assert leases.claim(lease(), "round") == GRANTED
    assert lost == ["granted"]
    assert leases.claim(lease(), "round") == SUPERSEDED  # another question by the same process


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
        leases.give_back(lease())
    assert answers == ["granted"] * MAX_DELIVERIES + ["exhausted"]


def test_progress_is_seen_and_only_a_held_lease_is_renewed(leases: Leases) -> None:
    leases.make_current({("round", "analysis"): "run"})
    leases.claim(lease(), "round")
    assert leases.progress(lease(phase="generating", tokens=42))
    assert leases.held()[0].tokens == 42
    assert leases.held()[0].phase == "generating"
    leases.give_back(lease())
    assert not leases.progress(lease(phase="generating", tokens=43))
    assert leases.held() == []


@pytest.mark.parametrize(
    "strange",
    [
        {"speed_profiles": {"analysis": [1]}},
        {"circuits": {"mlx": "open"}},
        {"circuits": {"mlx": {"state": "open", "stages": 5}}},
        {"load_s": {"analysis": "long"}},
        {"limit": "all"},
        {"gateway_requests": "many"},
        {"takes": 5},
        {"why": None},
        {"drained": "perhaps", "running": {"analysis": None}},
    ],
)
def test_what_makes_no_sense_in_a_heartbeat_is_not_heard(leases: Leases, strange: dict[str, Any]) -> None:
    leases.heartbeat(Heartbeat("p1", "one", 8, 3, {"analysis": {"model": "m"}}, **strange))
    row = json.loads(leases.redis.hget(HEARTBEATS + "one", "p1") or "")
    leases.redis.hset(HEARTBEATS + "one", "p2", json.dumps({**row, "slots": "many"}))
    (heartbeat,) = leases.heartbeats()
    assert (heartbeat.machine, heartbeat.slots, heartbeat.stages["analysis"]["model"]) == ("one", 8, "m")
    assert leases.look([]).heartbeats[0].machine == "one"
    peer(heartbeat)
    assert condition(MachineState("one", "primary", 8, {}, alive=True, heartbeat=heartbeat)).speeds == ()


def test_heartbeats_carry_what_a_machine_is(leases: Leases) -> None:
    stages = {"analysis": {"engine": "ollama", "model": "qwen3-coder:30b"}}
    leases.heartbeat(Heartbeat("p1", "dgx-spark-1", 8, 3, stages))
    heartbeat = leases.heartbeats()[0]
    assert (heartbeat.machine, heartbeat.slots, heartbeat.busy, heartbeat.stages) == (
        "dgx-spark-1",
        8,
        3,
        stages,
    )
    assert heartbeat.alive
    assert heartbeat.age_s < 30
    leases.leave(HERE, "p1")
    assert leases.heartbeats() == []


def test_a_machines_stages_keep_the_order_of_the_configuration(
    leases: Leases, redis_url: str, root: Path
) -> None:
    config = load(root / "config.toml", {"GRADER_REDIS_URL": redis_url})
    dispatch = Dispatch(config, celery_app.celery_app(redis_url, 1200), leases)
    for machine in config.machines:
        leases.heartbeat(
            Heartbeat(machine.name, machine.name, 1, 0, {stage: {} for stage in sorted(machine.stages)})
        )
    seen = {state.name: list(state.stages) for state in dispatch.machines()}
    assert seen == {machine.name: list(machine.stages) for machine in config.machines}


def test_gateway_requests_of_all_live_processes_are_counted(
    leases: Leases, redis_url: str, root: Path
) -> None:
    config = load(root / "config.toml", {"GRADER_REDIS_URL": redis_url})
    dispatch = Dispatch(config, celery_app.celery_app(redis_url, 1200), leases)
    name = config.machines[0].name
    for process, gateway_requests in (("new", 2), ("old", 1)):
        leases.heartbeat(Heartbeat(process, name, 8, 5, {}, gateway_requests=gateway_requests))
    state = next(one for one in dispatch.machines() if one.name == name)
    assert state.gateway_requests == 3
    waits = replace(state, busy=5, canary_age_s=1e6)
    assert not waits.hung, "its canary waits behind runs and gateway requests"
    assert replace(waits, gateway_requests=0).hung


def test_a_heartbeat_with_strange_counters_hides_no_machine(
    leases: Leases, redis_url: str, root: Path
) -> None:
    config = load(root / "config.toml", {"GRADER_REDIS_URL": redis_url})
    dispatch = Dispatch(config, celery_app.celery_app(redis_url, 1200), leases)
    strange: Any = {"mlx": {"running": "many", "requests": 3}}
    leases.heartbeat(Heartbeat("p", "mac-studio-1", 1, 0, {"feedback": {}}, engines=strange))
    state = next(one for one in dispatch.machines() if one.name == "mac-studio-1")
    assert state.engines == {"mlx": {"requests": 3}}


def test_messages_are_seen_by_their_run(leases: Leases, redis_url: str) -> None:
    app = celery_app.celery_app(redis_url, 1200)
    app.send_task(celery_app.RUN, kwargs={"job": {}}, queue="analysis.batch", task_id="run")
    queues = celery_app.stage_queues(["analysis", "feedback"])
    assert leases.waiting(queues) == {"run"}
    assert leases.lengths(queues) == {"analysis": 0, "feedback": 0, "analysis.batch": 1, "feedback.batch": 0}
    app.close()


# --- two machines a round -----------------------------------------------------------------------------

BOTH = {"analysis": {}, "feedback": {}}


def heartbeat(leases: Leases, machine: str, role: str = "primary", slots: int = 2) -> None:
    leases.heartbeat(Heartbeat(f"process of {machine}", machine, slots, 0, BOTH, role=role))


def asked(leases: Leases, run_id: str, machine: str, stage: str) -> Claim:
    asking = Lease(run_id, machine, f"process of {machine}", stage)
    return leases.claim(asking, "round", hand_on=True)


def test_the_second_stage_of_a_round_belongs_to_another_live_machine(leases: Leases) -> None:
    heartbeat(leases, "one")
    assert asked(leases, "a", "one", "analysis") == GRANTED
    assert asked(leases, "f", "one", "feedback") == GRANTED  # there is no other
    heartbeat(leases, "two", "spare")
    leases.give_back(Lease("f", "one", "process of one", "feedback"))
    assert asked(leases, "f", "one", "feedback") == Claim("elsewhere", "two")
    # what was handed on to a machine counts as its own at once
    assert asked(leases, "a2", "two", "analysis") == Claim("elsewhere", "one")


def test_it_goes_to_the_machine_with_most_room(leases: Leases) -> None:
    for name in ("one", "two", "three"):
        heartbeat(leases, name)
    for run_id, machine in (("x", "two"), ("y", "two"), ("z", "three")):
        leases.claim(Lease(run_id, machine, "p", "analysis"), f"round of {run_id}")
    assert asked(leases, "a", "one", "analysis") == GRANTED
    assert asked(leases, "f", "one", "feedback") == Claim("elsewhere", "three")


def test_a_machine_that_lacks_another_model_only_still_gets_work(leases: Leases) -> None:
    heartbeat(leases, "one")
    placed = {stage: {"engine": "ollama", "model": stage} for stage in BOTH}
    assert asked(leases, "a", "one", "analysis") == GRANTED
    for lacks, answer in (("feedback", GRANTED), ("analysis", Claim("elsewhere", "two"))):
        circuits = {"ollama": {"state": "open", "stages": [lacks]}}
        leases.heartbeat(Heartbeat("process of two", "two", 2, 0, placed, circuits=circuits))
        assert asked(leases, "f", "one", "feedback") == answer
        leases.give_back(Lease("f", "one", "process of one", "feedback"))


def test_a_dead_machine_gets_nothing(leases: Leases) -> None:
    heartbeat(leases, "one")
    heartbeat(leases, "two")
    row = json.loads(leases.redis.hget(HEARTBEATS + "two", "process of two"))
    leases.redis.hset(HEARTBEATS + "two", "process of two", json.dumps({**row, "at": row["at"] - 11}))
    assert asked(leases, "a", "one", "analysis") == GRANTED
    assert asked(leases, "f", "one", "feedback") == GRANTED


def test_it_goes_only_where_a_slot_is_free_for_it(leases: Leases) -> None:
    heartbeat(leases, "one")
    heartbeat(leases, "two", slots=1)
    assert asked(leases, "a", "one", "analysis") == GRANTED
    assert asked(leases, "f", "one", "feedback") == Claim("elsewhere", "two")
    # that one is on its way there (for a second, here for ever), so the slot is not free for the next one
    until(
        lambda: leases.redis.persist("grader:handed:one:two") or not asked(leases, "f", "one", "feedback"),
        60,
        "the mark is there",
    )
    for run_id in ("a2", "f2"):
        asking = Lease(run_id, "one", "p", "analysis" if run_id == "a2" else "feedback")
        assert leases.claim(asking, "another round", hand_on=True) == GRANTED


@pytest.mark.parametrize(
    "unfit",
    [
        {"reserved": "testing"},
        {"reserved": "batch"},
        {"circuits": {"mlx": {"state": "open"}}},
        {"limit": 1},
        {"drained": True},
    ],
)
def test_a_machine_that_should_not_have_it_gets_nothing(leases: Leases, unfit: dict[str, Any]) -> None:
    heartbeat(leases, "one")
    placed = {stage: {"engine": "mlx", "model": "m"} for stage in BOTH}
    leases.heartbeat(Heartbeat("process of two", "two", 2, 0, placed, **unfit))
    leases.claim(Lease("x", "two", "process of two", "analysis"), "some round")
    assert asked(leases, "a", "one", "analysis") == GRANTED
    assert asked(leases, "f", "one", "feedback") == GRANTED


def test_stages_of_one_round_asked_for_at_once_are_parted(leases: Leases) -> None:
    heartbeat(leases, "one")
    heartbeat(leases, "two")
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


def test_a_redis_that_forgot_everything_learns_of_the_lease_again(leases: Leases) -> None:
    leases.make_current({("round", "analysis"): "run"})
    leases.claim(lease(), "round")
    leases.redis.flushall()
    assert leases.progress(lease(phase="generating", tokens=5))
    assert [(held.run_id, held.tokens) for held in leases.held()] == [("run", 5)]
    assert leases.claim(lease(process="p2"), "round") == SUPERSEDED


def test_a_lease_that_was_taken_away_stays_away_where_redis_forgot_its_round(leases: Leases) -> None:
    """Else a machine that stands still would have it again with its next heartbeat."""
    leases.claim(lease(), "round")
    leases.redis.flushall()
    assert leases.progress(lease())
    leases.take_away(leases.held()[0])
    assert not leases.progress(lease())
    assert leases.held() == []


@pytest.mark.parametrize("content", ["{", "7", '{"process": 5, "stage": "analysis"}', "[" * 5000])
def test_what_makes_no_sense_in_a_lease_is_nobodys(leases: Leases, content: str) -> None:
    leases.claim(lease(), "round")
    leases.redis.hset(LEASES + HERE, "strange", content)
    leases.redis.hset(HEARTBEATS + HERE, "strange", content)
    assert [held.run_id for held in leases.held()] == ["run"]
    assert leases.held_of(["strange"]) == {}
    assert leases.heartbeats() == []
    heartbeat(leases, "two")
    assert asked(leases, "a", "two", "analysis") == GRANTED
    assert asked(leases, "f", "two", "feedback") == GRANTED


def test_a_machine_speaks_for_no_other_one(leases: Leases) -> None:
    heartbeat(leases, "one")
    lied = json.dumps({"process": "p", "machine": "one", "slots": 0, "busy": 9, "at": 9e12})
    leases.claim(Lease("x", "evil", "p", "analysis"), "another")
    leases.redis.hset(HEARTBEATS + "evil", "p", lied)
    leases.redis.hset(
        LEASES + "evil", "y", json.dumps({"machine": "one", "process": "p", "stage": "analysis"})
    )
    assert {one.machine for one in leases.heartbeats()} == {"one", "evil"}
    assert {one.machine for one in leases.held()} == {"evil"}


def test_a_run_whose_result_was_sent_is_not_begun_again(leases: Leases) -> None:
    leases.make_current({("round", "analysis"): "run"})
    leases.claim(lease(), "round")
    leases.finish(lease())
    assert leases.held() == []
    assert leases.claim(lease(), "round") == SUPERSEDED
    leases.make_current({("round", "analysis"): "next"})
    leases.finish(lease())  # a late end of the first says nothing about the next
    assert leases.claim(lease("next"), "round") == GRANTED


@pytest.mark.parametrize("end", ["give_back", "unclaim", "hand_back", "finish"])
def test_who_lost_a_lease_ends_nobody_elses(leases: Leases, end: str) -> None:
    """It was taken away, and another process began the same run."""
    assert leases.claim(lease(), "round") == GRANTED
    leases.give_back(lease())
    assert leases.claim(lease(process="p2"), "round") == GRANTED
    answer: object = None
    if end == "finish":
        leases.finish(lease())
    elif end == "hand_back":
        answer = leases.hand_back(HERE, "p1", ["run", "unknown"])
    elif end == "unclaim":
        answer = leases.unclaim(HERE, "p1", "run")
    else:
        leases.give_back(lease())
    assert answer == {"unclaim": False, "hand_back": {"unknown"}}.get(end)
    assert leases.held_of(["run"])["run"].process == "p2"
    assert leases.redis.get(f"grader:deliveries:{HERE}:run") == "2", "both beginnings count"
    assert leases.progress(lease(process="p2", phase="generating", tokens=1))


def test_a_lease_that_is_given_up_counts_for_nothing(leases: Leases) -> None:
    assert leases.claim(lease(), "round") == GRANTED
    assert leases.unclaim(HERE, "p1", "run")
    assert leases.unclaim(HERE, "p1", "run"), "the answer may have been lost on the way"
    assert (leases.held(), leases.redis.get(f"grader:deliveries:{HERE}:run")) == ([], "0")


def test_a_run_that_was_handed_back_may_be_begun_as_often_as_before(leases: Leases) -> None:
    for _ in range(MAX_DELIVERIES + 2):
        assert leases.claim(lease(), "round") == GRANTED
        leases.hand_back(HERE, "p1", ["run"])


def test_idle_time_is_counted_from_the_last_movement(leases: Leases) -> None:
    leases.claim(lease(phase="waiting"), "round")
    row = json.loads(str(leases.redis.hget(LEASES + HERE, "run")))
    leases.redis.hset(
        LEASES + HERE, "run", json.dumps({**row, "since": row["since"] - 90, "moved": row["moved"] - 80})
    )
    assert leases.progress(lease(phase="waiting"))
    (held,) = leases.held()
    assert (held.since_s // 10, held.idle_s // 10) == (9, 8)
    assert leases.progress(lease(phase="reading"))  # its turn came: now it begins
    (held,) = leases.held()
    assert (held.since_s // 10, held.idle_s // 10) == (0, 0)


def test_a_machine_to_be_avoided_hands_on_while_another_one_lives(leases: Leases) -> None:
    heartbeat(leases, "one")
    heartbeat(leases, "two")

    def ask(avoid: list[str], round_id: str = "round") -> Claim:
        return leases.claim(Lease("run", "one", "p", "analysis"), round_id, hand_on=True, avoid=avoid)

    assert ask(["one"]) == Claim("elsewhere", "two")
    assert ask(["one", "two"]) == GRANTED  # nobody is left: better here than nowhere


def test_the_sibling_stage_is_no_reason_to_stay_on_a_machine_that_failed(leases: Leases) -> None:
    heartbeat(leases, "one")
    heartbeat(leases, "two")
    assert leases.claim(Lease("f", "two", "p", "feedback"), "round") == GRANTED
    avoiding = leases.claim(Lease("a", "one", "p", "analysis"), "round", hand_on=True, avoid=["one"])
    assert avoiding == Claim("elsewhere", "two")


def test_a_drained_machine_gets_nothing(leases: Leases) -> None:
    heartbeat(leases, "one")
    heartbeat(leases, "two")
    heartbeat(leases, "three")
    leases.drain(["one", "two"])
    assert leases.claim(Lease("run", "one", "p", "analysis"), "round", hand_on=True) == Claim(
        "elsewhere", "three"
    )
    assert leases.heartbeat(Heartbeat("p", "one", 1, 0, BOTH))
    leases.drain([])
    assert not leases.heartbeat(Heartbeat("p", "one", 1, 0, BOTH))


def test_runs_that_must_be_alone_spread_over_the_machines(leases: Leases) -> None:
    heartbeat(leases, "one", slots=8)
    heartbeat(leases, "two", slots=8)

    def ask(run_id: str, machine: str) -> Claim:
        asking = Lease(run_id, machine, "p", "analysis", "waiting")
        return leases.claim(asking, f"round of {run_id}", hand_on=True, alone=True)

    assert ask("a", "one") == GRANTED  # nobody has less to do
    assert ask("b", "one") == Claim("elsewhere", "two")
    assert leases.claim(Lease("b", "two", "p", "analysis"), "round of b") == GRANTED
    assert ask("c", "one") == GRANTED  # one each
