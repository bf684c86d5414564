"""What runs beside a model, in this process: claims, results, heartbeats, a Redis that goes away."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from cli.dev.embedded_redis import start_redis
from cli.doctor.strategies import result_of
from grading.broker import celery_app
from grading.broker.canaries import examination_key
from grading.broker.connections import connect
from grading.broker.leases import MAX_DELIVERIES, Leases
from grading.broker.signing import signer
from grading.config.settings import Machine
from grading.domain.errors import Cancelled, EngineError
from grading.domain.evidence import Evidence
from grading.domain.jobs import Job, Material, Tokens
from grading.scheduling.crossings import UsualPrompts
from tests.support.factories import RUBRIC, document
from tests.support.system import until
from workers.machine import strategy_comparison
from workers.machine.active_run import Message
from workers.machine.engines.base import (
    Comparison,
    Generate,
    Generation,
    Progress,
    Request,
    TokenCounter,
)
from workers.machine.engines.instant import InstantEngine
from workers.machine.results import Inbox
from workers.machine.worker import MachineProcess

MACHINE = Machine.model_validate(
    {
        "name": "dgx-spark-2",
        "role": "spare",
        "slots": 3,
        "stages": {s: {"engine": "instant", "model": "m"} for s in ("analysis", "feedback")},
    }
)


class Scripted(InstantEngine):
    """Runs a function before it answers; what that raises is the engine's error."""

    def __init__(
        self, before: Callable[[Request, Progress], None] = lambda _request, _progress: None
    ) -> None:
        super().__init__()
        self.before = before
        self.calls = 0
        self.closed = False

    def generate(self, request: Request, progress: Progress) -> Generation:
        self.calls += 1
        self.before(request, progress)
        return super().generate(request, progress)

    def close(self) -> None:
        self.closed = True
        super().close()


@pytest.fixture
def leases(redis_url: str) -> Iterator[Leases]:
    client = connect(redis_url)
    yield Leases(client)
    client.close()


@pytest.fixture
def engine() -> Scripted:
    return Scripted()


@pytest.fixture
def sent() -> list[Mapping[str, Any]]:
    return []


@pytest.fixture
def process(leases: Leases, engine: Scripted, sent: list[Mapping[str, Any]]) -> MachineProcess:
    return MachineProcess(MACHINE, {"instant": engine}, leases, lambda result, _secret: sent.append(result))


def job(run_id: str = "run", stage: str = "analysis", **other: Any) -> dict[str, Any]:
    values: dict[str, Any] = {"budget_s": 30, "max_output_tokens": 800, **other}
    made = Job(
        run_id=run_id,
        round_id="round",
        stage=stage,
        material=Material(title="Sales"),
        rubric=RUBRIC,
        documents=(document(),),
        evidence=Evidence(added_lines=1),
        nonce="ab",
        **values,
    )
    return made.model_dump(mode="json")


def test_a_result_is_sent_at_once_with_its_prompt(
    process: MachineProcess, leases: Leases, sent: list[Mapping[str, Any]]
) -> None:
    returned = process.run(job())
    assert returned is not None
    (result,) = sent
    assert "Sales" in result["prompt"]["system"]
    # large, and only the server keeps it
    assert returned == {key: value for key, value in result.items() if key != "prompt"}
    assert returned["ok"]
    assert returned["provenance"]["machine"] == "dgx-spark-2"
    assert leases.held() == []


def test_while_it_works_its_lease_progress_and_heartbeat_can_be_seen(
    process: MachineProcess, leases: Leases, engine: Scripted
) -> None:
    seen: list[tuple[str, int, int]] = []

    def look(_request: Request, progress: Progress) -> None:
        for tokens, phase in ((0, "reading"), (7, "generating")):
            progress(tokens, phase)
            process.heartbeat()
            lease, heartbeat = leases.held()[0], leases.heartbeats()[0]
            assert (lease.machine, lease.process, lease.stage) == ("dgx-spark-2", process.process, "analysis")
            seen.append((lease.phase, lease.tokens, heartbeat.busy))

    engine.before = look
    process.run(job())
    assert seen == [("reading", 0, 1), ("generating", 7, 1)]
    process.heartbeat()
    heartbeat = leases.heartbeats()[0]
    assert (heartbeat.busy, heartbeat.slots, heartbeat.role, heartbeat.alive) == (0, 3, "spare", True)
    assert heartbeat.stages["feedback"] == {"engine": "instant", "model": "m", "source": "none"}


def test_heartbeats_come_by_themselves_until_it_ends(
    process: MachineProcess, leases: Leases, engine: Scripted
) -> None:
    bodies = (process.send_heartbeats_until_stopped, process.get_ready)
    threads = [threading.Thread(target=body) for body in bodies]
    threads.append(threading.Thread(target=process.throughput.until_stopped, args=(process.stop,)))
    for thread in threads:
        thread.start()
    until(leases.heartbeats, 30, "a heartbeat")
    process.close()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert leases.heartbeats() == []
    assert engine.calls == 0, "with nothing to do, it does nothing"


def test_close_ends_the_engines(process: MachineProcess, engine: Scripted) -> None:
    process.close()
    assert engine.closed


def test_a_superseded_run_is_not_worked_on(
    process: MachineProcess, leases: Leases, engine: Scripted, sent: list[Mapping[str, Any]]
) -> None:
    leases.make_current({("round", "analysis"): "newer"})
    assert process.run(job("older")) == {"superseded": "older"}
    assert (engine.calls, sent) == (0, [])
    assert process.run(job("newer")) is not None
    assert engine.calls == 1


def test_a_run_in_other_hands_is_not_worked_on(process: MachineProcess, leases: Leases) -> None:
    inner: list[dict[str, Any] | None] = []
    other = MachineProcess(MACHINE, {"instant": Scripted()}, leases, lambda *_: None)
    engine = process.engines["instant"]
    assert isinstance(engine, Scripted)
    engine.before = lambda _request, _progress: inner.append(other.run(job()))
    process.run(job())
    assert inner == [{"superseded": "run"}]


def test_work_that_was_begun_three_times_is_dead(
    process: MachineProcess, engine: Scripted, sent: list[Mapping[str, Any]]
) -> None:
    def die(_request: Request, _progress: Progress) -> None:
        raise KeyboardInterrupt

    engine.before = die
    for _ in range(MAX_DELIVERIES):
        with pytest.raises(KeyboardInterrupt):
            process.run(job())
    process.run(job())
    assert engine.calls == MAX_DELIVERIES
    last = sent[-1]
    assert (last["ok"], last["error"], last["retry"]) == (False, "exhausted", "never")
    assert "three times" in last["message"]


def test_a_failing_engine_gives_a_failed_result(
    process: MachineProcess, engine: Scripted, leases: Leases, sent: list[Mapping[str, Any]]
) -> None:
    def fail(_request: Request, _progress: Progress) -> None:
        raise EngineError("The model server is not there.")

    engine.before = fail
    process.run(job())
    assert (sent[0]["ok"], sent[0]["message"]) == (False, "The model server is not there.")
    assert leases.held() == []


@pytest.mark.parametrize("raw", [{}, {"run_id": "x"}, {**job(), "stage": 7}])
def test_a_message_that_is_no_job_is_refused(
    process: MachineProcess, engine: Scripted, sent: list[Mapping[str, Any]], raw: dict[str, Any]
) -> None:
    assert process.run(raw) == {"refused": "not a job"}
    assert (engine.calls, sent) == (0, [])


@pytest.mark.parametrize("change", [{"budget_s": "soon"}, {"documents": [{"path": 1}]}, {"stage": "style"}])
def test_a_job_this_machine_cannot_do_fails_and_nobody_waits_for_it(
    process: MachineProcess, engine: Scripted, sent: list[Mapping[str, Any]], change: dict[str, Any]
) -> None:
    content = process.run({**job(), **change})
    assert content is not None
    assert (content["ok"], content["error"], content["retry"]) == (False, "job_invalid", "elsewhere")
    assert sent == [content]
    assert engine.calls == 0


def test_a_job_of_a_newer_server_is_done_without_what_is_not_known_here(
    process: MachineProcess, engine: Scripted, sent: list[Mapping[str, Any]]
) -> None:
    """Else every machine that is updated after the server refuses all work until then."""
    raw = job()
    raw |= {"from_a_newer_version": {"a": [1]}, "material": {**raw["material"], "tone": "kind"}}
    raw["documents"] = [{**one, "owner_hint": None} for one in raw["documents"]]
    process.run(raw)
    assert [(one["ok"], one["error"]) for one in sent] == [(True, None)]
    assert engine.calls == 1


def test_both_stages_of_a_round_are_not_done_here_while_another_machine_is_alive(
    process: MachineProcess, leases: Leases, sent: list[Mapping[str, Any]]
) -> None:
    handed: list[str] = []
    message = Message("analysis", handed.append)
    assert process.run(job("a"), message) is not None
    other = MachineProcess(
        MACHINE.model_copy(update={"name": "mac-studio-2"}), {"instant": Scripted()}, leases, lambda *_: None
    )
    other.heartbeat()
    assert process.run(job("f", "feedback"), message) is None
    assert handed == ["machine.mac-studio-2"]
    assert [result["run_id"] for result in sent] == ["a"]


def test_a_run_that_cannot_be_handed_on_is_done_here(
    process: MachineProcess, leases: Leases, sent: list[Mapping[str, Any]]
) -> None:
    process.run(job("a"))
    MachineProcess(
        MACHINE.model_copy(update={"name": "mac-studio-2"}), {"instant": Scripted()}, leases, lambda *_: None
    ).heartbeat()

    def away(_queue: str) -> None:
        raise OperationalError("Redis is away")

    assert process.run(job("f", "feedback"), Message("feedback", away)) is not None
    assert [result["run_id"] for result in sent] == ["a", "f"]


def test_a_result_waits_for_a_redis_that_is_away(tmp_path: Path, engine: Scripted) -> None:
    redis = start_redis(tmp_path)
    inbox = Inbox(connect(redis.url), signer(redis.url, MACHINE.name))
    client = connect(redis.url)
    refused = threading.Event()

    def send(result: Mapping[str, Any], secret: str) -> None:
        try:
            inbox.result(result, secret)
        except RedisError:
            refused.set()
            raise

    process = MachineProcess(MACHINE, {"instant": engine}, Leases(client), send)
    engine.before = lambda _request, _progress: redis.stop()
    password = redis.url.split(":")[2].split("@")[0]
    returned: list[dict[str, Any] | None] = []
    worker = threading.Thread(target=lambda: returned.append(process.run(job())))
    worker.start()
    assert refused.wait(60)
    with start_redis(tmp_path, redis.port, password):
        worker.join(60)
        assert not worker.is_alive()
        assert client.llen(celery_app.inbox(MACHINE.name)) == 1
        client.close()
        inbox.redis.close()
    assert returned[0] is not None
    assert returned[0]["ok"]


def test_a_run_that_must_be_alone_waits_for_the_others_and_holds_back_newcomers(
    process: MachineProcess, leases: Leases, engine: Scripted
) -> None:
    order: list[tuple[str, bool]] = []
    first_is_in, go_on = threading.Event(), threading.Event()

    def note(request: Request, _progress: Progress) -> None:
        run = request.job.run_id
        others = set(process._working) - {run}
        order.append((run, any(process._working[o].phase != "waiting" for o in others)))
        if run == "first":
            first_is_in.set()
            assert go_on.wait(60)

    engine.before = note

    def start(run_id: str, **other: Any) -> threading.Thread:
        content = {**job(run_id), "round_id": f"round of {run_id}", **other}
        thread = threading.Thread(target=process.run, args=(content,))
        thread.start()
        return thread

    threads = [start("first")]
    assert first_is_in.wait(60)
    threads.append(start("suspect", alone=True))
    until(lambda: process.gate._waiting_alone == 1, 30, "the suspect waits")
    threads.append(start("third"))
    until(lambda: len(leases.held()) == 3, 30, "all are taken")
    assert {lease.run_id: lease.phase for lease in leases.held()}["suspect"] == "waiting"
    go_on.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert [run for run, _ in order] == ["first", "suspect", "third"]
    assert order[1] == ("suspect", False)
    assert leases.held() == []


def test_a_machine_that_is_to_be_avoided_hands_the_run_on(process: MachineProcess, leases: Leases) -> None:
    MachineProcess(
        MACHINE.model_copy(update={"name": "mac-studio-2"}), {"instant": Scripted()}, leases, lambda *_: None
    ).heartbeat()
    handed: list[str] = []
    content = {**job(), "avoid": ["dgx-spark-2"]}
    assert process.run(content, Message("analysis", handed.append)) is None
    assert handed == ["machine.mac-studio-2"]
    assert process.run(content, Message("analysis", handed.append, settled=True)) is not None


def test_what_is_under_way_is_handed_back_at_the_end(
    process: MachineProcess, leases: Leases, engine: Scripted
) -> None:
    sent_back: list[tuple[str, bool]] = []
    message = Message("analysis", lambda to: sent_back.append((to, leases.held() == [])))
    engine.before = lambda _request, _progress: sent_back.append(("handed back", bool(process.hand_back())))
    process.run(job(), message)
    # the lease is gone before the message comes again, else nobody would take it
    assert sent_back == [("analysis", True), ("handed back", True)]


def test_a_drained_machine_listens_no_more_until_it_is_back(process: MachineProcess, leases: Leases) -> None:
    heard: list[bool] = []
    process.listen = heard.append
    process.heartbeat()
    leases.drain(["dgx-spark-2"])
    process.heartbeat()
    process.heartbeat()
    assert heard == [False]
    assert leases.heartbeats()[0].drained
    leases.drain([])
    process.heartbeat()
    process.heartbeat()
    assert heard == [False, True]
    assert not leases.heartbeats()[0].drained


class Strategic(Scripted):
    """Has a strategy, and says of each way how long it took; nothing takes any time."""

    def says(self, fixed_s: float, token_s: float) -> Generate:
        def generate(request: Request, progress: Progress) -> Generation:
            self.calls += 1
            self.before(request, progress)
            if request.cancel.cancelled:
                raise Cancelled
            prompt = len(request.system + request.user) // 4
            cached = len(request.system) // 4 if self.calls > 4 else 0
            tokens = Tokens(prompt=prompt, cached=cached, output=10)
            return Generation("x", tokens, first_token_s=fixed_s + token_s * (prompt - cached), seconds=9.0)

        return generate

    @contextmanager
    def comparison(
        self, model: str, seconds: float, fits: Callable[[int], bool], draft: str = ""
    ) -> Iterator[Comparison]:
        yield Comparison("hybrid", "first_token", self.says(0.0, 0.003), self.says(3.0, 0.001))


@pytest.fixture
def strategic(leases: Leases) -> tuple[MachineProcess, Strategic]:
    engine = Strategic()
    return MachineProcess(MACHINE, {"instant": engine}, leases, lambda *_: None), engine


def test_strategies_are_compared_by_what_both_ways_took(
    strategic: tuple[MachineProcess, Strategic], leases: Leases
) -> None:
    process, _ = strategic
    app = celery_app.celery_app("memory://", 60, "dgx-spark-2")
    strategy_comparison.register(app, process)
    options = {"seconds": 60, "draft": ""}
    app.tasks[celery_app.COMPARE]("asked", options, leases.time() + 60)
    key = examination_key("dgx-spark-2", "asked")
    until(lambda: leases.redis.exists(key), 30, "an answer")
    told = json.loads(str(leases.redis.get(key)))
    assert (told["machine"], told["ended"]) == ("dgx-spark-2", "done")
    (found,) = told["strategies"]  # both stages have one model, which is measured once
    assert found["stages"] == ["analysis", "feedback"]
    assert [row["times"] for row in found["rows"]] == [strategy_comparison.ROUNDS] * 8
    result = result_of("one", found, UsualPrompts(runs=40, known=2000, new=640, output=300))
    assert result.advice is not None
    assert result.advice.tokens == pytest.approx(1500, rel=0.02)
    assert result.sentence == (
        f"pays from {result.advice.tokens:,} new tokens; prompts of students' work have 640 new tokens "
        "(median of 40 runs). Recommended: off."
    )
    assert not process.gate.shut
    app.tasks[celery_app.COMPARE]("late", options, leases.time() - 1)
    assert leases.redis.get(examination_key("dgx-spark-2", "late")) is None


def test_students_work_ends_a_comparison(strategic: tuple[MachineProcess, Strategic]) -> None:
    process, engine = strategic
    comes = threading.Thread(target=process.run, args=(job(),))

    def work(request: Request, _progress: Progress) -> None:
        if request.job.run_id != "comparison":
            return  # the student's, once nothing is measured any more
        if engine.calls == 7:
            comes.start()
            ended = threading.Event()
            with request.cancel.on_cancel(ended.set):
                assert ended.wait(30)

    engine.before = work
    told = strategy_comparison.compare(process, 60.0)
    comes.join(30)
    assert not comes.is_alive()
    assert told["ended"] == "work"
    assert len(told["strategies"][0]["rows"]) == 1  # what was measured before
    with process_busy(process):
        assert strategy_comparison.compare(process, 60.0)["ended"] == "busy"


class Short(Strategic):
    """The model's context has no room for the prefix that is measured."""

    opened = 0

    def token_counter(self, model: str, seconds: float, progress: Progress) -> TokenCounter:
        return TokenCounter(2000, lambda text: len(text) // 4)

    @contextmanager
    def comparison(
        self, model: str, seconds: float, fits: Callable[[int], bool], draft: str = ""
    ) -> Iterator[Comparison]:
        self.opened += 1
        yield Comparison("sharded", "answer", self.says(0.0, 0.003), self.says(3.0, 0.001))


def test_only_what_fits_the_context_is_compared(leases: Leases) -> None:
    process = MachineProcess(MACHINE, {"instant": Short()}, leases, lambda *_: None)
    (found,) = strategy_comparison.compare(process, 60.0)["strategies"]
    assert found["fault"] == ""
    assert {row["batch"] for row in found["rows"]} == {1, MACHINE.slots}
    assert max(row["known"] for row in found["rows"]) < 100  # the instructions alone


def test_no_other_model_is_loaded_for_a_comparison_once_work_waits(leases: Leases) -> None:
    stages = {s: {"engine": "instant", "model": s} for s in ("analysis", "feedback")}
    machine = Machine.model_validate({"name": "dgx-spark-2", "slots": 3, "stages": stages})
    engine = Short()
    process = MachineProcess(machine, {"instant": engine}, leases, lambda *_: None)

    def work(request: Request, _progress: Progress) -> None:
        request.cancel.cancel()

    engine.before = work
    assert len(strategy_comparison.compare(process, 60.0)["strategies"]) == 1
    assert engine.opened == 1


@contextmanager
def process_busy(process: MachineProcess) -> Iterator[None]:
    """A run is under way."""
    assert process.gate.enter_now(alone=False)
    yield
    process.gate.leave()


def test_a_comparison_ends_in_time(strategic: tuple[MachineProcess, Strategic]) -> None:
    process, engine = strategic

    def never(request: Request, _progress: Progress) -> None:
        ended = threading.Event()
        with request.cancel.on_cancel(ended.set):
            assert ended.wait(30)

    engine.before = never
    told = strategy_comparison.compare(process, 0.1)
    assert told["ended"] == "time"
    assert [(one["fault"], one["rows"]) for one in told["strategies"]] == [("", [])]


OPINIONS = Machine.model_validate(
    {
        "name": "dgx-spark-2",
        "slots": 3,
        "stages": {s: {"engine": "instant", "model": "m"} for s in ("analysis", "second_opinion")},
    }
)


def test_what_is_done_in_the_background_gives_way_to_grading(
    leases: Leases, engine: Scripted, sent: list[Mapping[str, Any]]
) -> None:
    process = MachineProcess(
        OPINIONS, {"instant": engine}, leases, lambda result, _secret: sent.append(result)
    )
    begun, ended, back = threading.Event(), threading.Event(), list[str]()

    def wait(request: Request, _progress: Progress) -> None:
        if request.job.stage == "second_opinion":
            begun.set()
            with request.cancel.on_cancel(ended.set):
                assert ended.wait(30)

    engine.before = wait
    message = Message("second_opinion", back.append, settled=True)
    working = threading.Thread(target=process.run, args=(job("opinion", "second_opinion"), message))
    working.start()
    assert begun.wait(30)
    assert process.run(job("grading")) is not None
    working.join(30)
    assert back == ["second_opinion"]
    assert [one["run_id"] for one in sent] == ["grading"]
    assert leases.held() == []

    def come(request: Request, _progress: Progress) -> None:
        if request.job.stage == "analysis":
            assert process.run(job("later", "second_opinion"), message) is None

    engine.before = come  # and none begins while a run of grading is in hand
    assert process.run(job("more")) is not None
    assert back == ["second_opinion", "second_opinion"]
    assert [one["run_id"] for one in sent] == ["grading", "more"]
