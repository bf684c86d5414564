"""What runs beside a model, in this process: claims, results, beats, a Redis that goes away."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kombu.exceptions import OperationalError

from cli.embedded import start_redis
from grading import queue
from grading.config import Machine
from grading.errors import EngineError
from grading.leases import MAX_DELIVERIES, Leases, connect
from grading.model import Evidence, Job, Material
from tests.factories import RUBRIC, document
from tests.system import until
from workers.machine.engines.base import Generation, Progress, Request
from workers.machine.engines.instant import InstantEngine
from workers.machine.process import MachineProcess

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
    return MachineProcess(MACHINE, {"instant": engine}, leases, sent.append)


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


def test_a_result_is_sent_at_once_and_returned_for_the_chord(
    process: MachineProcess, leases: Leases, sent: list[Mapping[str, Any]]
) -> None:
    returned = process.run(job())
    assert returned is not None
    assert sent == [returned]
    assert returned["ok"]
    assert returned["provenance"]["machine"] == "dgx-spark-2"
    assert leases.held() == []


def test_while_it_works_its_lease_progress_and_beat_can_be_seen(
    process: MachineProcess, leases: Leases, engine: Scripted
) -> None:
    seen: list[tuple[str, int, int]] = []

    def look(_request: Request, progress: Progress) -> None:
        for tokens in (0, 7):
            progress(tokens)
            process.beat()
            lease, beat = leases.held()[0], leases.beats()[0]
            assert (lease.machine, lease.process, lease.stage) == ("dgx-spark-2", process.process, "analysis")
            seen.append((lease.phase, lease.tokens, beat.busy))

    engine.before = look
    process.run(job())
    assert seen == [("reading", 0, 1), ("generating", 7, 1)]
    process.beat()
    beat = leases.beats()[0]
    assert (beat.busy, beat.slots, beat.role, beat.alive) == (0, 3, "spare", True)
    assert beat.stages["feedback"] == {"engine": "instant", "model": "m"}


def test_beats_come_by_themselves_until_it_ends(process: MachineProcess, leases: Leases) -> None:
    heart = threading.Thread(target=process.beat_until_stopped)
    heart.start()
    until(leases.beats, 5, "a beat")
    process.close()
    heart.join(5)
    assert not heart.is_alive()
    assert leases.beats() == []


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
    other = MachineProcess(MACHINE, {"instant": Scripted()}, leases, lambda _: None)
    engine = process.engines["instant"]
    assert isinstance(engine, Scripted)
    engine.before = lambda _request, _progress: inner.append(other.run(job()))
    process.run(job())
    assert inner == [{"superseded": "run"}]


def test_work_that_was_begun_three_times_is_given_up(
    process: MachineProcess, engine: Scripted, sent: list[Mapping[str, Any]]
) -> None:
    for _ in range(MAX_DELIVERIES):
        process.run(job())
    process.run(job())
    assert engine.calls == MAX_DELIVERIES
    last = sent[-1]
    assert (last["ok"], last["error"], last["retry"]) == (False, "exhausted", False)
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


@pytest.mark.parametrize("change", [{"budget_s": "soon"}, {"from_a_newer_version": 1}, {"stage": "style"}])
def test_a_job_this_machine_cannot_do_fails_and_nobody_waits_for_it(
    process: MachineProcess, engine: Scripted, sent: list[Mapping[str, Any]], change: dict[str, Any]
) -> None:
    content = process.run({**job(), **change})
    assert content is not None
    assert (content["ok"], content["error"], content["retry"]) == (False, "job_invalid", True)
    assert sent == [content]
    assert engine.calls == 0


def test_both_stages_of_a_round_are_not_done_here_while_another_machine_is_alive(
    process: MachineProcess, leases: Leases, sent: list[Mapping[str, Any]]
) -> None:
    handed: list[str] = []
    assert process.run(job("a"), handed.append) is not None
    other = MachineProcess(MACHINE.model_copy(update={"name": "mac-studio-2"}), {}, leases, lambda _: None)
    other.beat()
    assert process.run(job("f", "feedback"), handed.append) is None
    assert handed == ["mac-studio-2"]
    assert [result["run_id"] for result in sent] == ["a"]


def test_a_run_that_cannot_be_handed_on_is_done_here(
    process: MachineProcess, leases: Leases, sent: list[Mapping[str, Any]]
) -> None:
    process.run(job("a"))
    MachineProcess(MACHINE.model_copy(update={"name": "mac-studio-2"}), {}, leases, lambda _: None).beat()

    def away(_machine: str) -> None:
        raise OperationalError("Redis is away")

    assert process.run(job("f", "feedback"), away) is not None
    assert [result["run_id"] for result in sent] == ["a", "f"]


def test_a_result_waits_for_a_redis_that_is_away(tmp_path: Path, engine: Scripted) -> None:
    redis = start_redis(tmp_path)
    app = queue.celery_app(redis.url, 1200)
    client = connect(redis.url)
    refused = threading.Event()

    def send(result: Mapping[str, Any]) -> None:
        try:
            app.send_task(queue.RECORD, args=[result], queue=queue.STORE, ignore_result=True)
        except OperationalError:
            refused.set()
            raise

    process = MachineProcess(MACHINE, {"instant": engine}, Leases(client), send)
    engine.before = lambda _request, _progress: redis.stop()
    password = redis.url.split(":")[2].split("@")[0]
    returned: list[dict[str, Any] | None] = []
    worker = threading.Thread(target=lambda: returned.append(process.run(job())))
    worker.start()
    assert refused.wait(20)
    with start_redis(tmp_path, redis.port, password):
        worker.join(20)
        assert not worker.is_alive()
        assert client.llen(queue.STORE) == 1
        client.close()
        app.close()
    assert returned[0] is not None
    assert returned[0]["ok"]
