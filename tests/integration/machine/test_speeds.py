"""What a machine's heartbeats tell of its speed, and what of it survives a restart, on a real Redis."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from redis import Redis

from grading.broker.connections import connect
from grading.broker.leases import SPEED_PROFILES, Leases
from grading.broker.machine_status import peer
from grading.config.settings import Machine
from grading.domain.errors import EngineError
from grading.domain.jobs import Job, Provenance, Result, Tokens
from tests.integration.machine.test_process import MACHINE, Scripted, engine, job, leases, process, sent
from tests.support.system import until
from workers.machine.active_run import RunInHand
from workers.machine.engines.base import Phase, Progress, Request
from workers.machine.scheduling import throughput as module
from workers.machine.scheduling.throughput import ThroughputLearner
from workers.machine.worker import MachineProcess

__all__ = ["engine", "leases", "process", "sent"]


@dataclass
class Bench:
    """A machine's throughput with a clock that only the test moves."""

    throughput: ThroughputLearner
    runs: list[RunInHand] = field(default_factory=list)
    now: float = 0.0
    count: int = 0

    def begin(self, stage: str = "analysis") -> RunInHand:
        self.count += 1
        working = RunInHand(Job.model_validate(job(f"run-{self.count}", stage)), None)
        self.runs.append(working)
        self.throughput.look()
        return working

    def second(self, seconds: int = 1, phase: Phase = "generating", tokens: int = 0) -> None:
        for _ in range(seconds):
            self.now += 1
            for working in self.runs:
                working.moved(working.tokens + tokens, phase)
            self.throughput.look()

    def end(self, *, ok: bool = True, a_piece: int = 1) -> None:
        """The server counts so many tokens for each piece it sent."""
        working = self.runs[0]
        wrote = Tokens(output=a_piece * working.tokens)
        used = Provenance(machine="m", engine="instant", model="m", tokens=wrote)
        result = Result(
            run_id=working.job.run_id, round_id="r", stage=working.job.stage, ok=ok,
            error=None if ok else "engine_failed", provenance=used,
        )  # fmt: skip
        self.throughput.ended(working, result)
        self.runs.remove(working)

    def whole(self, tokens: int = 10, *, a_piece: int = 1) -> None:
        """A job of 2 s of reading and 20 s of writing."""
        self.begin()
        self.second(2, "reading")
        self.second(20, tokens=tokens)
        self.end(a_piece=a_piece)


@pytest.fixture
def client(redis_url: str) -> Iterator[Redis]:
    client = connect(redis_url)
    yield client
    client.close()


@pytest.fixture
def start(client: Redis) -> Callable[..., Bench]:
    def start(**other: Any) -> Bench:
        machine = Machine.model_validate({**MACHINE.model_dump(), **other})
        bench: Bench
        throughput = ThroughputLearner(
            machine, client, lambda: list(bench.runs), lambda: bench.now, unsure={"openai"}
        )
        bench = Bench(throughput)
        return bench

    return start


def test_heartbeats_carry_speeds_after_a_few_runs(
    process: MachineProcess, leases: Leases, engine: Scripted
) -> None:
    in_hand: list[Mapping[str, Any]] = []

    def write(_request: Request, progress: Progress) -> None:
        progress(0, "reading")
        process.throughput.look()
        progress(50)
        process.heartbeat()
        in_hand.append(
            {"running": leases.heartbeats()[0].running, "remaining": leases.heartbeats()[0].remaining}
        )

    engine.before = write
    for number in range(3):
        process.run(job(f"run-{number}"))
    process.heartbeat()
    heartbeat = leases.heartbeats()[0]
    assert set(heartbeat.speed_profiles) == {"analysis"}
    assert peer(heartbeat).speed_profiles["analysis"].rate(3) > 0
    assert (heartbeat.limit, heartbeat.limit_why) == (3, "all 3: nothing else is measured yet")
    assert (heartbeat.running, heartbeat.remaining) == ({}, {})
    assert all(one["running"] == {"analysis": 1} and 0 < one["remaining"]["analysis"] <= 1 for one in in_hand)


def test_gateway_requests_count_for_the_stage_whose_model_they_use(start: Callable[..., Bench]) -> None:
    models = {stage: {"engine": "instant", "model": stage} for stage in ("analysis", "feedback", "other")}
    bench = start(stages={**models, "other": models["feedback"]})
    places = {("instant", "analysis"): 1, ("instant", "feedback"): 2, ("instant", "of another machine"): 4}
    bench.throughput.gateway_requests = lambda: places
    told: list[Mapping[str, int]] = []
    sample = bench.throughput._learner.sample

    def listen(now: float, runs: Any, gateway_requests: Mapping[str, int]) -> Any:
        told.append(gateway_requests)
        return sample(now, runs, gateway_requests)

    bench.throughput._learner.sample = listen  # type: ignore[method-assign, assignment]
    bench.begin("other")
    bench.second()
    assert told[-1] == {"analysis": 1, "other": 2}, "of two stages with its model, the one that runs"


def test_what_is_best_is_not_sought_while_gateway_requests_are_there(start: Callable[..., Bench]) -> None:
    """They take a part of what the machine does, so it would look slow for the runs it has."""
    bench = start()
    bench.begin()
    sought: list[float] = []
    bench.second()
    best = bench.throughput._now_best
    assert best is not None
    best.saw = lambda now, *_: sought.append(now)  # type: ignore[method-assign, assignment]
    bench.throughput.gateway_requests = lambda: {("instant", "m"): 1}
    bench.second(3, tokens=10)
    assert sought == []
    bench.throughput.gateway_requests = dict
    bench.second(tokens=10)
    assert sought == [5.0]


def test_a_worker_learns_by_itself_and_keeps_what_it_learned(
    process: MachineProcess, leases: Leases, engine: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SAMPLE_S", 0.01)
    monkeypatch.setattr(module, "SAVE_S", 0.02)
    kept = threading.Event()
    engine.before = lambda _request, progress: (progress(10), kept.wait(0.05), progress(40))[1]
    thread = threading.Thread(target=process.throughput.until_stopped, args=(process.stop,))
    thread.start()
    try:
        process.run(job())
        until(lambda: leases.redis.hlen(SPEED_PROFILES + MACHINE.name), 30, "speeds in Redis")
    finally:
        process.close()
        thread.join(30)
    assert not thread.is_alive()


def test_a_server_that_sends_many_tokens_in_a_piece_is_as_fast_as_its_jobs(
    start: Callable[..., Bench],
) -> None:
    bench = start()
    bench.whole(a_piece=16)
    bench.begin()
    bench.second(2, "reading")
    bench.second(10, tokens=10)
    profile = bench.throughput.speed_profiles()["analysis"]
    assert profile.alone_s == pytest.approx(22, rel=0.1)
    assert profile.health == pytest.approx(1, abs=0.1)
    assert bench.throughput.remaining()["analysis"] == pytest.approx(0.5, abs=0.1)


def test_speeds_survive_a_restart(start: Callable[..., Bench], client: Redis) -> None:
    first = start()
    for _ in range(3):
        first.whole()
    first.throughput.save()
    second = start()
    assert second.throughput.speed_profiles() == {}
    second.throughput.restore()
    before, after = (
        first.throughput.speed_profiles()["analysis"],
        second.throughput.speed_profiles()["analysis"],
    )
    assert before.alone_s == pytest.approx(22, rel=0.1)
    assert (after.alone_s, after.tokens) == (pytest.approx(before.alone_s, rel=1e-3), before.tokens)


def test_speeds_of_another_model_or_of_long_ago_are_not_used(
    start: Callable[..., Bench], client: Redis
) -> None:
    first = start()
    first.whole()
    first.throughput.save()
    other = start(stages={"analysis": {"engine": "instant", "model": "another"}})
    other.throughput.restore()
    assert other.throughput.speed_profiles() == {}
    ((key, row),) = client.hgetall(SPEED_PROFILES + MACHINE.name).items()  # type: ignore[union-attr]
    for spoilt in ({**json.loads(row), "at": 5}, {"at": "x"}, [1]):
        client.hset(SPEED_PROFILES + MACHINE.name, key, json.dumps(spoilt))
        later = start()
        later.throughput.restore()
        assert later.throughput.speed_profiles() == {}
    client.hset(SPEED_PROFILES + MACHINE.name, key, "no json")
    start().throughput.restore()


def test_failed_runs_and_waiting_are_not_speed(start: Callable[..., Bench]) -> None:
    bench = start()
    bench.whole()
    usual = bench.throughput.speed_profiles()["analysis"].alone_s
    bench.begin()
    bench.second(300, "queued")
    bench.second(2, "reading")
    bench.second(20, tokens=10)
    bench.end()
    bench.begin()
    bench.second(60, tokens=0)
    bench.end(ok=False)
    assert bench.throughput.speed_profiles()["analysis"].alone_s == pytest.approx(usual, rel=0.1)


def test_models_that_take_turns_have_a_loading_time(start: Callable[..., Bench]) -> None:
    bench = start(
        stages={
            "analysis": {"engine": "instant", "model": "a"},
            "feedback": {"engine": "instant", "model": "f"},
        }
    )
    for stage in ("analysis", "feedback"):
        bench.begin(stage)
        bench.second(30, "loading")
        bench.second(5, tokens=10)
        bench.end()
    assert bench.throughput.load_s() == {}  # as far as is known, both are there now
    bench.begin("analysis")
    bench.second(40, "loading")
    bench.second(5, tokens=10)
    bench.end()
    assert bench.throughput.load_s() == {}
    bench.begin("feedback")
    bench.second(5, tokens=10)
    assert bench.throughput.load_s() == {"analysis": pytest.approx(40, abs=2)}


def test_a_broken_engine_gives_no_speed(process: MachineProcess, leases: Leases, engine: Scripted) -> None:
    def breaks(_request: Request, _progress: Progress) -> None:
        raise EngineError("It broke.")

    engine.before = breaks
    process.run(job())
    process.heartbeat()
    assert leases.heartbeats()[0].speed_profiles == {}


@pytest.mark.parametrize(("engine", "loads"), [("mlx", {"analysis": 5.0}), ("openai", {})])
def test_loading_counts_only_where_the_engine_knows_of_it(
    start: Callable[..., Bench], engine: str, loads: dict[str, float]
) -> None:
    bench = start(stages={stage: {"engine": engine, "model": stage} for stage in ("analysis", "feedback")})
    for stage in ("analysis", "feedback") * 2:  # they take turns in memory
        bench.begin(stage)
        bench.second(5, "loading")
        bench.second(2)
        bench.end()
    assert bench.throughput.load_s() == loads
