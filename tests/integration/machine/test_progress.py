"""How a machine's process tells of its runs, on a real Redis, and hears that they were taken away."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisAway

from grading.broker.erasure import withdraw
from grading.broker.heartbeats import Heartbeat, Lease
from grading.broker.leases import HEARTBEATS, LEASES, Leases
from grading.domain.errors import Cancelled
from tests.integration.machine.test_process import MACHINE, Scripted, engine, job, leases, process, sent
from tests.support.system import until
from workers.machine.active_run import Message
from workers.machine.engines.base import METRICS, Generation, Metric, Progress, Request
from workers.machine.engines.instant import InstantEngine
from workers.machine.worker import MachineProcess

__all__ = ["engine", "leases", "process", "sent"]
BOUND_S = 1.0


@contextmanager
def telling(process: MachineProcess) -> Iterator[None]:
    """The thread that a worker starts."""
    stop = threading.Event()
    thread = threading.Thread(target=process.telling.until_stopped, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        process.telling.changed()
        thread.join(60)
        assert not thread.is_alive()


@dataclass
class Patient(InstantEngine):
    """Writes until it is cancelled, and then at once no more; says what it saw."""

    begun: threading.Event = field(default_factory=threading.Event)
    freed: list[str] = field(default_factory=list)
    deaf: threading.Event | None = None
    """It listens to nothing but this."""

    def __post_init__(self) -> None:
        super().__init__()

    def generate(self, request: Request, progress: Progress) -> Generation:
        heard = self.deaf or threading.Event()
        progress(1)
        self.begun.set()
        with request.cancel.on_cancel(lambda: self.deaf or heard.set()):
            if not heard.wait(60) or self.deaf:
                return super().generate(request, progress)
        self.freed.append(request.job.run_id)
        raise Cancelled


@dataclass
class Started:
    """A run under way in a thread of the pool."""

    thread: threading.Thread
    returned: list[dict[str, Any] | None]

    def end(self) -> dict[str, Any] | None:
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self.returned[0]


def start(process: MachineProcess, content: Mapping[str, Any], message: Message | None = None) -> Started:
    returned: list[dict[str, Any] | None] = []
    thread = threading.Thread(target=lambda: returned.append(process.run(content, message)))
    thread.start()
    return Started(thread, returned)


# --- how often ----------------------------------------------------------------------------------------


@contextmanager
def watched(url: str) -> Iterator[list[tuple[float, list[str]]]]:
    """(Redis' time, words) of all commands, those inside scripts too."""
    seen: list[tuple[float, list[str]]] = []
    client = Redis.from_url(url, decode_responses=True)
    with client.monitor() as monitor:
        ready = threading.Event()

        def listen() -> None:
            ready.set()
            for one in monitor.listen():
                words = one["command"].split()
                if words[:2] == ["SET", "the-end"]:
                    return
                seen.append((one["time"], words))

        thread = threading.Thread(target=listen)
        thread.start()
        assert ready.wait(60)
        yield seen
        with Redis.from_url(url) as other:
            other.set("the-end", 1)
        thread.join(60)
    client.close()


def test_a_firehose_of_progress_is_at_most_two_writes_a_second_a_run(leases: Leases, redis_url: str) -> None:
    calls: list[int] = []
    end = threading.Event()

    def pour(_request: Request, progress: Progress) -> None:
        tokens = 0
        progress(0, "loading")
        progress(0, "reading")
        while not end.wait(0.001):
            tokens += 1
            progress(tokens, "generating", f'{{"achieved": "{tokens}')
        calls.append(tokens)

    process = MachineProcess(MACHINE, {"instant": Scripted(pour)}, leases, lambda *_: None)
    names = ["a", "b", "c"]
    with telling(process), watched(redis_url) as seen:
        runs = [start(process, {**job(n, draft=True), "round_id": f"round of {n}"}) for n in names]
        until(lambda: all(_written(seen, name)[4:] for name in names), 30, "each is told four times")
        process.heartbeat()
        end.set()
        for run in runs:
            run.end()
    for name in names:
        times = _written(seen, name)[1:]  # the first is the claim
        assert len(times) >= 4
        assert all(third - first >= BOUND_S for first, third in zip(times, times[2:], strict=False)), times
    assert sum(calls) > 5 * sum(len(_written(seen, name)) for name in names)
    asked = [
        words
        for _, words in seen
        if words[0] == "EVALSHA" and words.count(LEASES + MACHINE.name) and len(words) > 12
    ]
    assert asked  # several runs in one round trip


def _written(seen: list[tuple[float, list[str]]], run_id: str) -> list[float]:
    return [moment for moment, words in list(seen) if words[:3] == ["HSET", LEASES + MACHINE.name, run_id]]


def test_nothing_is_written_when_nothing_changed(
    process: MachineProcess, leases: Leases, engine: Scripted, redis_url: str
) -> None:
    seen: list[tuple[float, list[str]]] = []

    def stand_still(_request: Request, progress: Progress) -> None:
        progress(3, "reading")
        process.heartbeat()
        with watched(redis_url) as commands:
            for _ in range(3):
                progress(3, "reading")
                process.telling.tell()
                process.heartbeat()
        seen.extend(commands)

    engine.before = stand_still
    process.run(job())
    words = [words for _, words in seen]
    assert [one[1] for one in words if one[0] == "HSET"] == [HEARTBEATS + MACHINE.name] * 3
    assert sum(one[0] == "HGET" for one in words) == 3  # each heartbeat asked whether it still has the run


# --- taken away ---------------------------------------------------------------------------------------


def _dispatched_again(leases: Leases) -> None:
    leases.redis.hdel(LEASES + MACHINE.name, "run")
    leases.make_current({("round", "analysis"): "newer"})


def _stalled(leases: Leases) -> None:
    leases.redis.hdel(LEASES + MACHINE.name, "run")  # and begun again later


def _in_other_hands(leases: Leases) -> None:
    leases.redis.hdel(LEASES + MACHINE.name, "run")
    other = Lease("run", "mac-studio-1", "other process", "analysis", round_id="round")
    assert leases.claim(other, "round").answer == "granted"


@pytest.mark.parametrize("take", [_dispatched_again, _stalled, _in_other_hands])
def test_a_run_that_was_taken_away_frees_its_slot_at_once_and_sends_nothing(
    leases: Leases, take: Callable[[Leases], None]
) -> None:
    sent: list[Any] = []
    patient = Patient()
    process = MachineProcess(
        MACHINE, {"instant": patient}, leases, lambda result, _secret: sent.append(result)
    )
    leases.make_current({("round", "analysis"): "run"})
    run = start(process, job())
    assert patient.begun.wait(60)
    process.heartbeat()
    assert leases.held_of(["run"])["run"].tokens == 1
    take(leases)
    before = leases.held()
    process.heartbeat()
    assert run.end() == {"superseded": "run"}
    assert patient.freed == ["run"]
    assert sent == []
    # whoever has it now is left alone
    assert [(one.run_id, one.process) for one in leases.held()] == [(b.run_id, b.process) for b in before]


def test_what_is_withdrawn_is_not_told_again(leases: Leases) -> None:
    """An erased student's draft must not come back to Redis, nor the machine go on with their work."""
    engine = Patient()
    process = MachineProcess(MACHINE, {"instant": engine}, leases, lambda *_: None)
    run_id, round_id = "a" * 32, "b" * 32
    leases.make_current({(round_id, "analysis"): run_id})
    run = start(process, {**job(run_id), "round_id": round_id})
    assert engine.begun.wait(60)
    assert withdraw(leases.redis, (run_id, round_id)) > 0
    process.heartbeat()
    assert leases.held() == []
    assert run.end() == {"superseded": run_id}
    assert engine.freed == [run_id]
    assert not [key for key in leases.redis.scan_iter() if run_id in key or round_id in key]


def test_a_run_that_is_done_all_the_same_is_sent_as_it_may_be_the_first(
    leases: Leases,
) -> None:
    sent: list[Mapping[str, Any]] = []

    class Late(InstantEngine):
        def generate(self, request: Request, progress: Progress) -> Generation:
            done = super().generate(request, progress)
            _dispatched_again(leases)
            process.heartbeat()
            assert request.cancel.cancelled
            return done

    process = MachineProcess(
        MACHINE, {"instant": Late()}, leases, lambda result, _secret: sent.append(result)
    )
    leases.make_current({("round", "analysis"): "run"})
    assert process.run(job()) is not None
    assert [(one["run_id"], one["ok"]) for one in sent] == [("run", True)]


def test_a_run_that_waits_to_be_alone_stops_waiting_when_it_is_taken_away(leases: Leases) -> None:
    sent: list[Any] = []
    patient = Patient()
    process = MachineProcess(
        MACHINE, {"instant": patient}, leases, lambda result, _secret: sent.append(result)
    )
    first = start(process, {**job("first"), "round_id": "round of first"})
    assert patient.begun.wait(60)
    suspect = start(process, job("suspect", alone=True))
    until(lambda: process.gate._waiting_alone == 1, 30, "the suspect waits")
    process.heartbeat()
    leases.make_current({("round", "analysis"): "newer"})
    leases.redis.hdel(LEASES + MACHINE.name, "suspect")
    process.heartbeat()
    assert suspect.end() == {"superseded": "suspect"}
    assert patient.freed == []
    process.break_off(20)
    first.end()


def test_without_a_lease_it_works_on(
    process: MachineProcess, leases: Leases, engine: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis was away at the claim and knows the run as waiting: nobody took it away."""
    leases.make_current({("round", "analysis"): "run"})
    cancelled: list[bool] = []

    def look(request: Request, _progress: Progress) -> None:
        process.heartbeat()
        cancelled.append(request.cancel.cancelled)

    def away(*_: Any, **__: Any) -> None:
        raise RedisAway

    monkeypatch.setattr(leases, "claim", away)
    engine.before = look
    assert process.run(job()) is not None
    assert cancelled == [False]


# --- the end ------------------------------------------------------------------------------------------


def test_what_is_handed_back_is_broken_off_and_sends_nothing(leases: Leases) -> None:
    sent: list[Any] = []
    patient, again = Patient(), []
    process = MachineProcess(
        MACHINE, {"instant": patient}, leases, lambda result, _secret: sent.append(result)
    )
    run = start(process, job(), Message("analysis", again.append))
    assert patient.begun.wait(60)
    process.leave()
    assert process.hand_back() == 1
    process.telling.confirm()  # a heartbeat that was under way finds no lease; that changes nothing
    assert process.break_off(20)
    assert run.end() is None
    assert (patient.freed, again, sent) == (["run"], ["analysis"], [])


def test_an_engine_that_does_not_listen_delays_the_end_no_longer_than_given(leases: Leases) -> None:
    patient = Patient(deaf=(over := threading.Event()))
    process = MachineProcess(MACHINE, {"instant": patient}, leases, lambda *_: None)
    run = start(process, job(), Message("analysis", lambda _: None))
    assert patient.begun.wait(60)
    process.hand_back()
    assert not process.break_off(0.05)
    over.set()
    assert run.end() is None


# --- what heartbeats say -----------------------------------------------------------------------------------


class Counting(Scripted):
    """Has weights, and counts."""

    uses_model = True
    metrics = {**METRICS, "cache_bytes": Metric("gauge", "Bytes of caches.")}
    digests: list[str | Exception]

    def counters(self) -> dict[str, float]:
        return {"prompt_tokens": 20.0, "cached_tokens": 15, "cache_bytes": float("nan"), "unheard_of": 1}

    def digest(self, model: str, seconds: float) -> str:
        assert (model, seconds > 0) == ("m", True)
        said = self.digests.pop(0) if len(self.digests) > 1 else self.digests[0]  # a probe asks, too
        if isinstance(said, Exception):
            raise said
        return said


def _stages(digest: str, **more: str) -> dict[str, dict[str, str]]:
    place = {"engine": "instant", "model": "m", "digest": digest, **more}
    return {"analysis": place, "feedback": place}


def test_heartbeats_carry_the_digests_and_counters_of_engines(leases: Leases) -> None:
    counting = Counting()
    counting.digests = [Cancelled("not now"), "sha256:ab"]
    process = MachineProcess(MACHINE, {"instant": counting}, leases, lambda *_: None)
    assert not process.model_digests.ask()
    process.heartbeat()
    heartbeat = leases.heartbeats()[0]
    assert "digest" not in heartbeat.stages["analysis"]
    assert heartbeat.engines == {"instant": {"prompt_tokens": 20, "cached_tokens": 15}}
    assert heartbeat.metrics["cache_bytes"] == {"kind": "gauge", "help": "Bytes of caches."}
    assert heartbeat.metrics.keys() == counting.metrics.keys()
    assert process.model_digests.ask()
    process.heartbeat()
    assert leases.heartbeats()[0].stages == _stages("sha256:ab")
    counting.digests = ["sha256:cd"]
    assert not process.model_digests.ask()  # the model was fetched anew
    process.heartbeat()
    assert leases.heartbeats()[0].stages == _stages("sha256:cd", before="sha256:ab")
    assert leases.heartbeats()[0].broken == {"analysis", "feedback"}
    process.leave()  # its probes end


def test_counting_that_fails_costs_no_heartbeat(leases: Leases, monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting()
    process = MachineProcess(MACHINE, {"instant": counting}, leases, lambda *_: None)

    def fail() -> dict[str, float]:
        raise RuntimeError("half a figure")

    monkeypatch.setattr(counting, "counters", fail)
    process.heartbeat()
    assert leases.heartbeats()[0].engines == {"instant": {}}
    monkeypatch.setattr(counting, "metrics", 7)
    process.heartbeat()
    assert leases.heartbeats()[0].metrics == {}


def test_heartbeats_of_a_machine_that_says_less_are_read(leases: Leases) -> None:
    leases.heartbeat(Heartbeat("p", "one", 1, 0))
    assert leases.heartbeats()[0].engines == {}
