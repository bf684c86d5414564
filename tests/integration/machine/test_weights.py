"""A machine whose model has other weights than before gives no grade, until a person accepts the new ones."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from grading.broker.kept_digests import KeptDigests
from grading.broker.leases import Leases
from grading.config.settings import Machine
from grading.domain.errors import BudgetExceeded
from grading.domain.model_behaviour import is_fingerprint
from grading.domain.model_digests import changes
from tests.integration.machine.test_process import job, leases
from tests.support.servers.base import ModelServer
from tests.support.servers.ollama_server import ollama_server
from tests.support.servers.openai_server import openai_server
from workers.machine.engines import open_engines
from workers.machine.model_digests import SharedAsk
from workers.machine.worker import MachineProcess

__all__ = ["leases"]


@dataclass
class Lab:
    """A machine with a model server, and what its worker sent."""

    machine: Machine
    leases: Leases
    server: ModelServer
    sent: list[Mapping[str, Any]] = field(default_factory=list)

    def start(self) -> MachineProcess:
        """A worker process, as after a restart."""
        engines = open_engines(self.machine)
        return MachineProcess(self.machine, engines, self.leases, lambda result, _: self.sent.append(result))

    def grade(self, process: MachineProcess, run: str) -> dict[str, Any]:
        """What became of a run."""
        process.run({**job(run), "round_id": f"round of {run}"})
        return next(dict(one) for one in reversed(self.sent) if one["run_id"] == run)


@pytest.fixture(params=["openai", "ollama"])
def lab(request: pytest.FixtureRequest, leases: Leases) -> Iterator[Lab]:
    make, tail = {"openai": (openai_server, "/v1"), "ollama": (ollama_server, "")}[request.param]
    with make() as server:
        place = {"engine": request.param, "model": "tiny"}
        engines = {request.param: {"url": server.url + tail}}
        machine = Machine.model_validate({"name": "one", "engines": engines, "stages": {"analysis": place}})
        yield Lab(machine, leases, server)


def test_no_grade_is_given_by_other_weights(lab: Lab) -> None:
    process = lab.start()
    first = lab.grade(process, "first")
    assert first["ok"]
    kept = first["provenance"]["digest"]
    assert kept
    lab.server.behaviour.weights = "other"
    swapped = lab.grade(process, "swapped")
    assert (swapped["ok"], swapped["error"]) == (False, "model_missing")
    assert swapped["message_code"] == "engine.weights_changed"
    process.heartbeat()
    (heartbeat,) = lab.leases.heartbeats()
    assert heartbeat.broken == {"analysis"}
    (change,) = changes("one", heartbeat.stages)
    assert change.before == kept != change.now
    process.close()

    again = lab.start()  # restarted, it has not forgotten
    assert lab.grade(again, "restarted")["error"] == "model_missing"
    assert KeptDigests(lab.leases.redis, "one").forget() == 1
    assert lab.grade(again, "accepted")["ok"]
    again.heartbeat()
    (mine,) = (one for one in lab.leases.heartbeats() if one.process == again.process)
    assert changes("one", mine.stages) == []
    lab.server.behaviour.weights = ""
    assert lab.grade(again, "back")["error"] == "model_missing"
    again.close()


def test_a_server_with_nothing_to_do_is_asked_for_no_tokens(lab: Lab) -> None:
    process = lab.start()
    place = lab.machine.stages["analysis"].place
    engine, asked = process.engines[place[0]], []
    digest = engine.digest  # type: ignore[attr-defined]
    engine.digest = lambda *of: asked.append(of) or digest(*of)  # type: ignore[attr-defined]
    assert all(process.model_digests.ask() for _ in range(3))
    free = not is_fingerprint(process.model_digests.known(place))
    assert len(asked) == (3 if free else 1)
    lab.server.behaviour.weights = "other"
    assert lab.grade(process, "swapped")["error"] == "model_missing"
    lab.server.behaviour.weights = ""
    assert process.model_digests.ask()  # a change is looked at again, so that it ends by itself
    process.close()


def test_a_model_that_the_server_does_not_have_is_found_before_any_run(leases: Leases) -> None:
    with openai_server(flavour="llama") as server:
        place = {"engine": "spark_a", "model": "gemma-3-27b"}
        engines = {"spark_a": {"kind": "openai", "url": f"{server.url}/v1"}}
        machine = Machine.model_validate({"name": "one", "engines": engines, "stages": {"analysis": place}})
        process = Lab(machine, leases, server).start()
        assert not process.model_digests.ask()
        process.heartbeat()
        (mine,) = (one for one in leases.heartbeats() if one.process == process.process)
        assert mine.broken == {"analysis"}
        assert "It has tiny" in mine.circuits["spark_a"]["why"]
        process.close()


def test_a_swap_while_the_answer_is_written_is_noticed(lab: Lab) -> None:
    process = lab.start()
    assert process.model_digests.ask()
    engine = process.engines[lab.machine.stages["analysis"].engine]
    generate = engine.generate

    def swapped(*args: Any, **more: Any) -> Any:
        lab.server.behaviour.weights = "other"
        return generate(*args, **more)

    engine.generate = swapped  # type: ignore[method-assign]
    assert lab.grade(process, "run")["error"] == "model_missing"
    process.close()


def test_one_question_serves_all_who_came_before_it() -> None:
    shared, asked, answers = SharedAsk(), threading.Semaphore(0), threading.Semaphore(0)

    def question(_seconds: float) -> str:
        asked.release()
        assert answers.acquire(timeout=60)
        return "digest"

    got: list[str] = []
    threads = [threading.Thread(target=lambda: got.append(shared.ask(question, 60))) for _ in range(5)]
    threads[0].start()
    assert asked.acquire(timeout=60)
    for thread in threads[1:]:
        thread.start()
    with pytest.raises(BudgetExceeded):
        shared.ask(question, 0.01)  # the first is still asked
    answers.release(5)
    for thread in threads:
        thread.join(60)
    assert got == ["digest"] * 5
    assert shared._begun <= 5
