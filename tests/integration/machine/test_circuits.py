"""Engines that go away and come back: what their machine still takes, and what becomes of the runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from cli.dev.embedded_redis import free_port
from grading.broker.heartbeats import Lease
from grading.broker.leases import LEASES, Leases
from grading.broker.machine_status import MachineState, condition
from grading.config.settings import Machine
from grading.domain.errors import EngineError, EngineUnreachable
from grading.scheduling.circuit_breaker import Rules
from tests.integration.machine.test_process import MACHINE, Scripted, engine, job, leases, sent
from tests.support.factories import result
from tests.support.german import in_german
from tests.support.servers.base import Behaviour, ModelServer
from tests.support.servers.ollama_server import OllamaHandler, ollama_server
from tests.support.system import until
from workers.machine import requeue
from workers.machine.active_run import Message
from workers.machine.circuits import CircuitBreakers
from workers.machine.engines import Engine, open_engine
from workers.machine.engines.base import Generation, Progress, Request
from workers.machine.worker import MachineProcess

__all__ = ["engine", "leases", "sent"]
FAST = Rules(first_s=0.05, most_s=0.2)
NEVER = Rules(first_s=3600, most_s=3600)
Sent = list[Mapping[str, Any]]


class Picky(Scripted):
    """Answers probes in any case; `before` is for the rest."""

    def generate(self, request: Request, progress: Progress) -> Generation:
        if request.job.run_id == "probe":
            return super(Scripted, self).generate(request, progress)
        return super().generate(request, progress)


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requeue, "PAUSE_S", 0.05)


@pytest.fixture
def processes(leases: Leases, sent: Sent) -> Iterator[list[MachineProcess]]:
    made: list[MachineProcess] = []
    yield made
    for process in made:
        process.close()


def open_process(
    made: list[MachineProcess], machine: Machine, engine: Engine, leases: Leases, sent: Sent, rules: Rules
) -> MachineProcess:
    made.append(
        MachineProcess(
            machine,
            {engine.name: engine},
            leases,
            lambda result, _secret: sent.append(result),
            circuit_rules=rules,
        )
    )
    return made[-1]


def with_ollama(**models: str) -> Machine:
    return Machine.model_validate(
        {
            "name": "dgx-spark-2",
            "slots": 3,
            "engines": {"ollama": {"url": "http://127.0.0.1:1"}},
            "stages": {stage: {"engine": "ollama", "model": model} for stage, model in models.items()},
        }
    )


BOTH = with_ollama(analysis="tiny", feedback="other")


def begun(leases: Leases, run_id: str = "run") -> int:
    counts = leases.redis.mget([f"grader:deliveries:{name}:{run_id}" for name in leases.machines])
    return sum(int(count or 0) for count in counts)


def test_a_server_that_is_away_costs_no_run_anything_and_is_used_when_it_is_back(
    processes: list[MachineProcess], leases: Leases, sent: Sent
) -> None:
    port, back = free_port(), list[str]()
    engine = open_engine("ollama", {"url": f"http://127.0.0.1:{port}"})
    process = open_process(processes, BOTH, engine, leases, sent, FAST)
    leases.make_current({("round", "analysis"): "run"})
    looked = threading.Event()
    process.look_again = looked.set
    message = Message("analysis.batch", back.append)

    assert process.run(job(), message) is None
    assert (back, sent, leases.held(), begun(leases)) == (["analysis.batch"], [], [], 0)
    assert not process.circuits.closed("analysis")
    assert not process.circuits.closed("feedback")  # the same server
    assert looked.wait(30)
    until(lambda: leases.heartbeats()[:1] and leases.heartbeats()[0].broken, 30, "others are told")
    (told,) = leases.heartbeats()[0].circuits.values()
    assert (told["state"] in ("open", "probing"), told["stages"]) == (True, ["analysis", "feedback"])
    assert "Start it" in told["why"]
    assert told["why_code"] == "engine.refused_connection"
    (circuit,) = condition(
        MachineState("one", "worker", 4, {}, True, heartbeat=leases.heartbeats()[0])
    ).circuits
    assert "hat die Verbindung abgelehnt" in in_german(circuit.why)
    assert process.run(job(), message) is None  # it comes here again
    assert back == ["analysis.batch"] * 2

    with ModelServer(OllamaHandler, Behaviour(("tiny", "other")), port) as server:
        assert process.circuits.wait_closed("analysis", 30)
        assert process.circuits.wait_closed("feedback", 30)
        assert process.run(job(), message) is not None
        assert [one["ok"] for one in sent] == [True]
        assert server.stats.max_concurrency == 1  # one probe at a time, never beside a run
    until(lambda: not leases.heartbeats()[0].circuits, 30, "others are told")


def test_a_missing_model_closes_its_own_stage_only(
    processes: list[MachineProcess], leases: Leases, sent: Sent
) -> None:
    with ollama_server() as server:
        engine = open_engine("ollama", {"url": server.url})
        machine = with_ollama(analysis="tiny", feedback="absent")
        process = open_process(processes, machine, engine, leases, sent, FAST)
        back: list[str] = []
        assert process.run(job(stage="feedback"), Message("feedback", back.append)) is None
        assert back == ["feedback"]
        assert process.circuits.state()["ollama"]["stages"] == ["feedback"]
        assert process.run(job("other"), Message("analysis", back.append)) is not None
        assert [one["ok"] for one in sent] == [True]
        server.behaviour.models = ("tiny", "absent")  # somebody pulled it
        assert process.circuits.wait_closed("feedback", 30)


def test_a_run_for_which_alone_the_engine_is_away_has_failed(
    processes: list[MachineProcess], leases: Leases, sent: Sent
) -> None:
    def away(_request: Request, _progress: Progress) -> None:
        raise EngineUnreachable

    process = open_process(processes, MACHINE, Picky(away), leases, sent, FAST)
    back: list[str] = []
    assert process.run(job(), Message("analysis", back.append)) is None
    assert process.circuits.wait_closed("analysis", 30)  # it answers the probe
    assert process.run(job(), Message("analysis", back.append)) is not None
    assert (back, [one["error"] for one in sent]) == (["analysis"], ["engine_unreachable"])


def test_with_redis_away_a_run_that_met_no_engine_has_failed(
    processes: list[MachineProcess], leases: Leases, sent: Sent
) -> None:
    def away(_request: Request, _progress: Progress) -> None:
        raise EngineUnreachable

    def resend(_to: str) -> None:
        raise OSError

    process = open_process(processes, MACHINE, Scripted(away), leases, sent, NEVER)
    assert process.run(job(), Message("analysis", resend)) is not None
    assert [one["error"] for one in sent] == ["engine_unreachable"]


def test_runs_that_wait_for_their_turn_go_back_unbegun(
    processes: list[MachineProcess], leases: Leases, sent: Sent
) -> None:
    go_on, back, calls = threading.Event(), list[str](), list[str]()

    def away(request: Request, _progress: Progress) -> None:
        calls.append(request.job.run_id)
        assert go_on.wait(30)
        raise EngineUnreachable

    process = open_process(processes, MACHINE, Scripted(away), leases, sent, NEVER)
    leases.make_current({("round", "analysis"): "run", ("two", "analysis"): "second"})
    runs = [
        threading.Thread(target=process.run, args=(given, Message("analysis", back.append)), daemon=True)
        for given in (job(alone=True), {**job("second"), "round_id": "two"})
    ]
    runs[0].start()
    until(lambda: calls, 30, "the first is in the engine")
    runs[1].start()
    until(lambda: [one.phase for one in leases.held()].count("waiting") == 1, 30, "the second waits")
    go_on.set()
    for run in runs:
        run.join(30)
        assert not run.is_alive()
    assert (calls, back, sent) == (["run"], ["analysis"] * 2, [])
    assert leases.held() == []
    assert (begun(leases), begun(leases, "second")) == (0, 0)


def test_three_failures_in_the_engine_cost_tries_and_close_the_machine(
    processes: list[MachineProcess], leases: Leases, sent: Sent
) -> None:
    def fail(_request: Request, _progress: Progress) -> None:
        raise EngineError("Out of memory.")

    process = open_process(processes, MACHINE, Scripted(fail), leases, sent, NEVER)
    back: list[str] = []
    for number in range(4):
        given = {**job(f"run-{number}"), "round_id": f"round-{number}"}
        process.run(given, Message("analysis", back.append))
    assert [one["error"] for one in sent] == ["engine_failed"] * 3  # any of them may have been to blame
    assert back == ["analysis"]
    assert process.circuits.state()["instant"]["why"] == "Out of memory."


def test_a_probe_that_hangs_ends_with_the_process(
    processes: list[MachineProcess], leases: Leases, sent: Sent
) -> None:
    with ollama_server(fault="hang") as server:
        engine = open_engine("ollama", {"url": server.url})
        process = open_process(processes, BOTH, engine, leases, sent, FAST)
        server.behaviour.models = ()
        process.run(job(), Message("analysis", lambda _to: None))
        server.behaviour.models = ("tiny",)
        until(lambda: server.stats.active, 30, "the probe hangs")
        assert process.circuits.state()["ollama"]["state"] == "probing"
        process.leave()
        assert server.wait_until_idle(30)
        until(lambda: "circuits" not in {one.name for one in threading.enumerate()}, 30, "its thread ends")


def test_a_probe_that_hangs_keeps_no_other_engine_waiting() -> None:
    hangs, go_on = threading.Event(), threading.Event()

    def hang(_request: Request, _progress: Progress) -> None:
        hangs.set()
        assert go_on.wait(60)

    stages = {"analysis": {"engine": "instant", "model": "m"}, "feedback": {"engine": "rules", "model": "m"}}
    machine = MACHINE.model_copy(update={"stages": Machine(name="one", stages=stages).stages})
    circuits = CircuitBreakers(machine, {"instant": Scripted(hang), "rules": Scripted()}, rules=FAST)

    def fail(stage: str) -> None:
        failed = result("run", "round", stage, ok=False, error="engine_unreachable")
        circuits.ended(failed, circuits.now(), 0, "starting")

    fail("analysis")
    assert hangs.wait(30)
    fail("feedback")
    try:
        assert circuits.wait_closed("feedback", 30)
        assert not circuits.closed("analysis")
    finally:
        go_on.set()
    assert circuits.wait_closed("analysis", 30)
    circuits.close()


def test_a_run_that_others_have_by_now_is_not_sent_again(
    processes: list[MachineProcess], leases: Leases, sent: Sent
) -> None:
    back: list[str] = []
    other = Lease("run", "mac-studio", "other", "analysis", round_id="round")

    def away(_request: Request, _progress: Progress) -> None:
        # the sweeper took it away, and its message came again elsewhere
        leases.redis.hdel(LEASES + MACHINE.name, "run")
        assert leases.claim(other, "round").answer == "granted"
        raise EngineUnreachable

    process = open_process(processes, MACHINE, Picky(away), leases, sent, NEVER)
    leases.make_current({("round", "analysis"): "run"})
    assert process.run(job(), Message("analysis", back.append)) is None
    assert (back, sent, begun(leases)) == ([], [], 2)
    assert leases.held_of(["run"])["run"].machine == "mac-studio"


def test_a_run_that_was_handed_back_meets_no_second_end_when_its_engine_goes_away(
    processes: list[MachineProcess], leases: Leases, sent: Sent
) -> None:
    back: list[str] = []
    process: MachineProcess
    other = Lease("run", "mac-studio", "other", "analysis", round_id="round")

    def away(_request: Request, _progress: Progress) -> None:
        process.hand_back()
        assert leases.claim(other, "round").answer == "granted"
        raise EngineUnreachable

    process = open_process(processes, MACHINE, Picky(away), leases, sent, NEVER)
    leases.make_current({("round", "analysis"): "run"})
    assert process.run(job(), Message("analysis", back.append)) is None
    assert (back, sent, begun(leases)) == (["analysis"], [], 1)
    assert leases.held_of(["run"])["run"].machine == "mac-studio"
