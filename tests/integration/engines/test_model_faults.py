"""Every fault of a model or its server: its code, its bounded end, and what becomes of the round."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import pytest
from markupsafe import escape
from sqlalchemy import select, update

from grading.broker.dispatch import Outgoing, Room
from grading.domain.errors import EngineError, OutputEmpty, for_student, model_faults
from grading.domain.jobs import Job, Tokens
from grading.domain.report import Report
from grading.domain.round_states import PRIORITIES, RoundState, StageState
from grading.store.database import now
from grading.store.tables import Grade, Round, RoundStage
from tests.integration.webapp import FakeDispatch, School, configuration, form_token
from tests.support.engines import ask, quiet
from tests.support.german import in_german
from tests.support.servers.base import FAULTS, UNPARSED, ModelServer
from tests.support.servers.ollama_server import ollama_server
from tests.support.servers.openai_server import openai_server
from workers.machine.circuits import probe
from workers.machine.engines import Engine, Generation, Progress, Request, open_engine
from workers.machine.stages import run_stage
from workers.server.admit import admit_runs
from workers.server.context import Server
from workers.server.prepare import prepare
from workers.server.record import combine, record

STALLING = {"chunk_timeout": 0.2, "load_timeout": 0.3}
PATIENT = {"chunk_timeout": 60.0, "load_timeout": 60.0}
"""A busy machine must not turn one fault into another."""
FROM_ENGINE = {
    "refuse": "engine_unreachable",
    "500": "engine_failed",
    "503": "engine_busy",
    "404": "model_missing",
    "hang": "engine_stalled",
    "stall": "engine_stalled",
    "trickle": "engine_stalled",
    "half_json": "engine_garbled",
    "garbage": "engine_garbled",
    "empty": "engine_broke_off",
    "wordless": "output_empty",
    "endless": "output_endless",
    "endless_tokens": "output_endless",
    "blank": "output_endless",
    "error_midstream": "engine_broke_off",
    "unparsed": "output_invalid",
    "reset": "engine_broke_off",
    "close": "engine_broke_off",
    "html": "engine_garbled",
    "proxy": "engine_unreachable",
    "redirect": "engine_garbled",
}
FROM_STAGE = {"length": "output_truncated", "prose": "output_invalid", "echo": "output_invalid"}
EVERY = FROM_ENGINE | FROM_STAGE
OFTEN = {*{code: fault for fault, code in reversed(FROM_ENGINE.items())}.values(), "html", *FROM_STAGE}
"""One of each code of an engine, one whose sentence has markup in it, and those of stages."""
WHOLE_WAY = [pytest.param(fault, marks=() if fault in OFTEN else pytest.mark.soak) for fault in EVERY]
"""What becomes of a round depends on the code, which `test_every_fault_has_its_code_and_its_end` shows."""
LATER = {"engine_busy", "output_truncated"}
MAKERS: dict[str, Callable[..., ModelServer]] = {"ollama": ollama_server, "openai": openai_server}


@contextmanager
def faulty(kind: str, fault: str) -> Iterator[tuple[Engine, ModelServer, str]]:
    """An engine on a server with this fault, the server, and its address."""
    with MAKERS[kind](fault=fault) as server, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound but not listening
        port = closed.getsockname()[1] if fault == "refuse" else server.server_address[1]
        address = f"http://127.0.0.1:{port}"
        limits = STALLING if EVERY.get(fault) == "engine_stalled" else PATIENT
        url = f"{address}/v1" if kind == "openai" else address
        yield open_engine(kind, {"url": url, "busy_timeout": 0.2, **limits}), server, address


def test_no_fault_is_left_out() -> None:
    assert set(EVERY) == set(FAULTS)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("fault", FROM_ENGINE)
def test_every_fault_has_its_code_and_its_end(kind: str, fault: str) -> None:
    with faulty(kind, fault) as (engine, server, address):
        began = time.monotonic()
        with pytest.raises(EngineError) as caught:
            engine.generate(ask(deadline_s=600), quiet)
        assert time.monotonic() - began < 50  # so by the fault's own limit, not by the deadline
        error = caught.value
        assert type(error) is model_faults()[FROM_ENGINE[fault]]
        assert error.retry == ("later" if error.code in LATER else "elsewhere")
        if error.code.startswith("engine_") or error.code == "model_missing":
            assert address in error.message
        assert in_german(error.coded)
        if fault == "404":
            assert "tiny" in error.message
        if fault == "unparsed":
            assert UNPARSED in error.message
        if fault != "refuse":
            # where the server is late, its time is over at the questions before
            assert error.code == "engine_stalled" or server.wait_for("requests", 1)
            assert server.wait_until_idle()  # nothing goes on unheard


# --- the whole way, from the engine to the pages --------------------------------------------------------


@dataclass
class Collecting(FakeDispatch):
    """Keeps what would be sent to machines."""

    sent: list[Outgoing] = field(default_factory=list)

    def room(self) -> dict[tuple[str, str], Room]:
        return dict.fromkeys(product(("analysis", "feedback"), PRIORITIES), Room(9, 9))

    def tell_backlog(self, runs: Mapping[tuple[str, str], int]) -> None:
        pass

    def send(self, outgoing: Sequence[Outgoing], to: str = "") -> None:
        self.sent += outgoing

    def admit_runs(self) -> bool:
        return True


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Iterator[School]:
    made = School(tmp_path_factory.mktemp("faults"))
    yield made
    made.close()


def graded(server: Server, round_id: str, broken: Engine) -> int:
    """Work a round off, its analysis on the broken engine; returns how often that was tried."""
    dispatch: Any = server.dispatch
    tries = 0
    assert prepare(server, round_id)
    for _ in range(5):
        admit_runs(server)
        jobs = [Job.model_validate(one.job) for one in dispatch.sent]
        dispatch.sent.clear()
        for job in jobs:
            engine = broken if job.stage == "analysis" else open_engine("instant", {})
            tries += job.stage == "analysis"
            record(server, [run_stage(job, engine, "tiny", "dgx-spark-1", quiet)])
        combine(server, round_id)
        with server.store.write() as session:
            waits = RoundStage.not_before.is_not(None)
            session.execute(update(RoundStage).where(waits).values(not_before=now(session)))
        if not jobs:
            return tries
    raise AssertionError("the round came to no end")


@pytest.mark.parametrize("fault", WHOLE_WAY)
def test_a_fault_ends_in_a_partial_round_and_two_sentences(school: School, fault: str) -> None:
    submission = school.submit("anna", school.quick)
    with school.store.read() as session:
        round_id = session.scalars(select(Round.id).where(Round.submission_id == submission)).one()
    with faulty("ollama", fault) as (engine, _, address):
        server = Server(configuration(), school.store, Collecting())  # type: ignore[arg-type]
        assert graded(server, round_id, engine) == 3
    with school.store.read() as session:
        current, grade = (
            session.get_one(Round, round_id),
            session.scalars(select(Grade).where(Grade.round_id == round_id)).one(),
        )
        stage = session.get_one(RoundStage, (round_id, "analysis"))
    sentence = for_student(EVERY[fault]).message
    made = Report.model_validate(grade.report)
    assert (stage.state, stage.error) == (StageState.DEAD, EVERY[fault])
    assert (current.state, current.failure.message) == (RoundState.PARTIAL, sentence)
    assert made.failures == {"analysis": sentence}
    # no wrong grade: what was not judged has no points, and there is no total
    assert grade.points is None
    assert {c.criterion: (c.points, c.basis) for c in made.criteria}["load"] == (None, "ungraded")
    page = f"/submissions/{submission}"
    teacher, anna = school.client("teacher"), school.client("anna")
    assert str(escape(sentence)) in anna.get(page).get_data(as_text=True)  # before the release, too
    teacher.post(f"{page}/release", data={"csrf_token": form_token(teacher), "sure": "1"})
    seen = anna.get(page).get_data(as_text=True)
    assert f"{escape(sentence)} Its points are pending, not zero." in seen
    assert address not in seen
    assert str(escape(stage.message)) not in seen
    for staff in (teacher, school.client("grader")):
        assert f"{escape(stage.message)} <code>{EVERY[fault]}</code>" in staff.get(page).get_data(
            as_text=True
        )
    german = teacher.get(page, headers={"Accept-Language": "de"}).get_data(as_text=True)
    assert f"{escape(in_german(stage.message))} <code>{EVERY[fault]}</code>" in german


# --- phases and the probe -------------------------------------------------------------------------------


def phases(engine: Engine, request: Request) -> list[str]:
    """What an engine says of a generation, without repetitions."""
    told: list[str] = []

    def hear(tokens: int, phase: str = "generating") -> None:
        assert (tokens > 0) == (phase == "generating")
        if told[-1:] != [phase]:
            told.append(phase)

    engine.generate(request, hear)
    return told


def test_engines_tell_their_phase() -> None:
    with ollama_server() as server:
        engine = open_engine("ollama", {"url": server.url})
        long = ask(user="x" * 30_000)
        assert phases(engine, long) == ["loading", "generating"]  # a longer context than it holds
        assert phases(engine, long) == ["reading", "generating"]
        server.behaviour.loaded = False
        assert phases(engine, long) == ["loading", "generating"]
    with openai_server() as server:
        engine = open_engine("openai", {"url": f"{server.url}/v1"})
        assert phases(engine, ask()) == ["loading", "reading", "generating"]


@pytest.mark.parametrize("kind", MAKERS)
def test_a_probe_takes_a_few_tokens_and_unloads_nothing(kind: str) -> None:
    with faulty(kind, "") as (engine, server, _):
        server.contexts["tiny"] = 32_768
        answer = probe(engine, "tiny", 60.0)
        assert answer.text
        assert 1 <= answer.tokens.output <= 16
        assert server.contexts["tiny"] == 32_768  # another context would have loaded the model again
        server.behaviour.fault = "404"
        with pytest.raises(EngineError) as caught:
            probe(engine, "tiny", 60.0)
        assert caught.value.code == "model_missing"


class Thinking:
    """A model that spends its tokens on thoughts."""

    name, uses_model = "thinking", True

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens

    def generate(self, request: Request, progress: Progress) -> Generation:
        progress(self.tokens)
        raise OutputEmpty

    def close(self) -> None:
        """Nothing."""


def test_a_model_that_only_thinks_is_alive() -> None:
    assert probe(Thinking(16), "tiny", 5.0).tokens == Tokens(output=16)
    with pytest.raises(OutputEmpty):
        probe(Thinking(0), "tiny", 5.0)
    for name in ("rules", "instant"):
        assert probe(open_engine(name, {}), name, 5.0).text


def test_thoughts_count_as_progress_but_not_without_end() -> None:
    with openai_server() as server:
        engine = open_engine("openai", {"url": f"{server.url}/v1"})
        server.behaviour.thinks = 20
        counts: list[int] = []
        engine.generate(ask(), lambda tokens, _phase="generating": counts.append(tokens))
        assert counts[2] == 1  # the first thought
        server.behaviour.thinks = 100_000
        with pytest.raises(EngineError) as caught:
            engine.generate(replace(ask(), max_output_tokens=50), quiet)
        assert caught.value.code == "output_endless"
