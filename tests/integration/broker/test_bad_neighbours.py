"""One bad submission, row or message must not stop what works for all others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kombu.exceptions import LimitExceeded
from sqlalchemy import update

from cli.dev.supervisor import LIFELINE, LONGEST_WAIT_S, STEADY_S, Part, Supervisor
from cli.settings import own_secret_key, secret_key
from grading.broker import celery_app
from grading.broker.heartbeats import Heartbeat, Lease
from grading.broker.leases import HEARTBEATS, LEASES
from grading.checks import collect
from grading.config.settings import load
from grading.domain.document import Document
from grading.domain.errors import ConfigError
from grading.domain.evidence import Evidence
from grading.domain.messages import verbatim
from grading.domain.round_states import RoundState, RunState, StageState
from grading.store import Store, schema
from grading.store.blobs import store_blobs
from grading.store.database import now
from grading.store.rounds import lifecycle
from grading.store.tables import Outbox, Round, RoundStage, Run
from tests.support.factories import add_assignment, begin_round, result, submit
from tests.support.german import in_german
from tests.support.system import close_dispatch, until
from workers.server import prepare, record, sweeper
from workers.server.admit import AT_ONCE, admit_runs
from workers.server.context import Server, open_server
from workers.server.messages import CHECKS_FAILED, CHECKS_NEVER_ENDED, NO_REPORT
from workers.server.sweeper import MOST_PREPARES, Sweeper

ANALYSIS = {"analysis": {"engine": "instant", "model": "m"}}
BOTH = {**ANALYSIS, "feedback": {"engine": "instant", "model": "m"}}


@pytest.fixture
def server(fresh_database: Callable[..., str], redis_url: str, root: Path) -> Iterator[Server]:
    environ = {"GRADER_DATABASE_URL": fresh_database(schema.upgrade), "GRADER_REDIS_URL": redis_url}
    made = open_server(load(root / "config.toml", environ))
    yield made
    close_dispatch(made.dispatch)
    made.store.close()


@pytest.fixture
def assignment(server: Server) -> int:
    return add_assignment(server.store)


def received(server: Server, assignment: int, student: str, text: str = "x <- 1") -> str:
    """A round whose announcement was lost a while ago."""
    round_id = submit(server.store, assignment, student, source_text=text).round_id
    announced_long_ago(server, round_id)
    return round_id


def announced_long_ago(server: Server, round_id: str) -> None:
    with server.store.write() as session:
        earlier = now(session) - timedelta(minutes=1)
        session.execute(update(Outbox).where(Outbox.key == round_id).values(not_before=earlier))


def running(server: Server, assignment: int, student: str) -> dict[str, str]:
    """A round that was begun, its messages lost; its runs by stage."""
    round_id = submit(server.store, assignment, student).round_id
    assert prepare.prepare(server, round_id)
    with server.store.write() as session:
        return {order.stage: order.run_id for order in begin_round(session, round_id)}


def round_of(server: Server, run_id: str) -> str:
    with server.store.read() as session:
        return session.get_one(Run, run_id).round_id


def row(server: Server, round_id: str) -> Round:
    with server.store.read() as session:
        return session.get_one(Round, round_id)


def test_a_submission_the_checks_fail_on_ends_and_the_others_go_on(
    server: Server, assignment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fragile(documents: tuple[Document, ...], *rest: Any) -> Evidence:
        if "poison" in documents[0].cells[0].source:
            raise RecursionError
        return collect(documents, *rest)

    monkeypatch.setattr(prepare, "collect", fragile)
    poison = received(server, assignment, "s1", "poison <- 1")
    sound = received(server, assignment, "s2")
    Sweeper(server).step()
    assert (row(server, poison).state, row(server, poison).failure) == ("failed", CHECKS_FAILED())
    assert in_german(row(server, poison).failure).startswith(
        "Die automatischen Prüfungen dieser Abgabe sind fehlgeschlagen"
    )
    assert row(server, sound).state == RoundState.QUEUED


def test_a_submission_that_kills_whoever_prepares_it_is_dead(
    server: Server, assignment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """The process ends here."""

    def kill(*_: object) -> bool:
        raise Killed

    poison = received(server, assignment, "s1")
    monkeypatch.setattr(sweeper, "prepare", kill)
    for _ in range(MOST_PREPARES):
        with pytest.raises(Killed):
            Sweeper(server).step()
        Sweeper(server).step()  # not again at once
        announced_long_ago(server, poison)
    Sweeper(server).step()
    assert (row(server, poison).state, row(server, poison).failure) == ("failed", CHECKS_NEVER_ENDED())
    with server.store.read() as session:
        assert session.query(Outbox).filter_by(key=poison).one().done_at is not None


def test_a_round_without_a_report_ends_and_the_others_are_combined(server: Server, assignment: int) -> None:
    broken, sound = running(server, assignment, "s1"), running(server, assignment, "s2")
    with server.store.write() as session:
        round_id = session.get_one(Run, broken["analysis"]).round_id
        session.execute(update(Round).where(Round.id == round_id).values(prepared={"documents": []}))
    for runs in (broken, sound):
        for stage, run_id in runs.items():
            record.record(server, [result(run_id, round_of(server, run_id), stage)])
    Sweeper(server).step()
    ended = row(server, round_of(server, broken["analysis"]))
    assert (ended.state, ended.failure) == (RoundState.FAILED, NO_REPORT())
    assert row(server, round_of(server, sound["analysis"])).state == RoundState.GRADED


def test_a_broken_part_of_the_sweep_does_not_stop_the_rest(
    server: Server, assignment: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waits = received(server, assignment, "s1")
    monkeypatch.setattr(server.dispatch.registry, "held", lambda: 1 / 0)
    Sweeper(server).step()
    assert row(server, waits).state == RoundState.QUEUED
    assert "a step of the sweep failed" in caplog.text


def test_a_lease_of_a_run_that_sql_does_not_know_is_dropped(server: Server) -> None:
    with server.store.write() as session:
        assert lifecycle.mark_lost(session, "0" * 32, verbatim("gone"), loss="alone") is None


def test_what_machines_say_is_stored_whatever_it_holds(server: Server, assignment: int) -> None:
    runs = running(server, assignment, "s1")
    for stage, run_id in runs.items():
        said = result(
            run_id, round_of(server, run_id), stage, ok=False, retry="never", message="no\0 " + "x" * 5000
        ).model_copy(update={"error": "e" * 60, "output": {"text": "\0"}})
        assert record.record(server, [said])[0].outcome == "failed"
    with server.store.read() as session:
        for stage in runs:
            dead = session.get_one(RoundStage, (round_of(server, runs[stage]), stage))
            assert (dead.state, dead.message.message[:4], len(dead.error or "")) == (
                StageState.DEAD,
                "no x",
                40,
            )
    Sweeper(server).step()
    assert row(server, round_of(server, runs["analysis"])).state == RoundState.FAILED


def test_a_stage_without_machines_does_not_hold_up_the_tries_of_the_other(
    server: Server, assignment: int
) -> None:
    for number in range(AT_ONCE):
        lost(server, running(server, assignment, f"f{number}")["feedback"])
    waits = running(server, assignment, "last")["analysis"]
    lost(server, waits)
    server.dispatch.registry.heartbeat(Heartbeat("p", "dgx-spark-1", 4, 0, ANALYSIS))
    assert admit_runs(server) == 1
    with server.store.read() as session:
        again = session.get_one(RoundStage, (session.get_one(Run, waits).round_id, "analysis"))
        assert again.state == StageState.DISPATCHED
    assert admit_runs(server) == 0
    assert server.dispatch.registry.lengths([celery_app.STORE]) == {
        celery_app.STORE: 0
    }  # nor asks for itself again


def lost(server: Server, run_id: str) -> None:
    with server.store.write() as session:
        lifecycle.mark_lost(session, run_id, verbatim("lost"), loss="unbegun")
        assert session.get_one(Run, run_id).state == RunState.LOST


def test_a_machine_of_a_newer_version_is_seen(server: Server) -> None:
    leases = server.dispatch.registry
    leases.heartbeat(Heartbeat("p", "dgx-spark-1", 4, 0, BOTH))
    leases.claim(Lease("r", "dgx-spark-1", "p", "analysis"), "round")
    for name, key in ((HEARTBEATS + "dgx-spark-1", "p"), (LEASES + "dgx-spark-1", "r")):
        content = json.loads(str(leases.redis.hget(name, key)))
        leases.redis.hset(name, key, json.dumps({**content, "temperature_c": 70}))
    assert [heartbeat.machine for heartbeat in leases.heartbeats()] == ["dgx-spark-1"]
    assert [lease.run_id for lease in leases.held()] == ["r"]


def test_a_submission_stays_accepted_when_all_connections_wait_for_redis(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise LimitExceeded(10)

    monkeypatch.setattr(server.dispatch.celery, "send_task", full)
    assert server.dispatch.announce("0" * 32) is False


def together(number: int, do: Callable[[int], object]) -> list[Exception]:
    """Do it in so many threads at once; what they raised."""
    barrier, raised = threading.Barrier(number), list[Exception]()

    def one(index: int) -> None:
        barrier.wait()
        try:
            do(index)
        except Exception as error:  # noqa: BLE001 - the caller looks at them
            raised.append(error)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return raised


def test_the_same_files_in_another_order_do_not_wait_for_each_other(server: Server) -> None:
    files = [bytes([number]) * 10 for number in range(40)]

    def store(index: int) -> None:
        with server.store.write() as session:
            assert len(store_blobs(session, files if index % 2 else files[::-1])) == len(files)

    assert together(6, store) == []


def test_a_transaction_that_stands_still_gives_its_rows_back(postgres_url: str) -> None:
    store = Store(postgres_url)
    with store.read() as session:
        said = session.connection().exec_driver_sql(
            "select current_setting('idle_in_transaction_session_timeout'), current_setting('lock_timeout')"
        )
        assert tuple(said.one()) == ("1min", "30s")
    store.close()


# --- processes ----------------------------------------------------------------------------------------


@dataclass
class Waits:
    """The waits of a supervisor, without waiting."""

    stop_after: int
    asked: list[float]

    def wait(self, seconds: float) -> bool:
        self.asked.append(seconds)
        return len(self.asked) >= self.stop_after

    def is_set(self) -> bool:
        return False

    def set(self) -> None:
        """Nothing."""


def test_a_part_that_cannot_start_any_more_is_not_started_without_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, waits = Part("web", (sys.executable, "-c", "")), Waits(8, [])
    keeper = Supervisor(tmp_path, os.environ)
    keeper._stopping = waits  # type: ignore[assignment]
    monkeypatch.setattr(keeper, "start", lambda part: None)
    for lived in (STEADY_S + 1, *[0.1] * 7):
        keeper._ended.put((part, lived))
    keeper.keep_running()
    assert waits.asked[0] == 0.0
    assert all(later >= earlier for earlier, later in zip(waits.asked, waits.asked[1:], strict=False))
    assert waits.asked[-1] == LONGEST_WAIT_S


def test_a_supervisor_outlives_a_start_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fails, popen = iter([True, False]), subprocess.Popen

    def start(*arguments: object, **options: object) -> object:
        if next(fails, False):
            raise BlockingIOError(11, "no more processes")
        return popen(*arguments, **options)  # type: ignore[call-overload]

    keeper = Supervisor(tmp_path, os.environ)
    monkeypatch.setattr(subprocess, "Popen", start)
    keeper._ended.put((Part("web", (sys.executable, "-c", "import time; time.sleep(60)")), STEADY_S + 1))
    thread = threading.Thread(target=keeper.keep_running, daemon=True)
    thread.start()
    try:
        until(lambda: "web" in keeper.running, 30, "the second try")
        assert "could not be started" in caplog.text
    finally:
        keeper.stop()
        thread.join(60)


PART = """
import os, threading
from cli.dev.supervisor import end_with_supervisor
end_with_supervisor(os.environ)
next(t for t in threading.enumerate() if t.name == "lifeline").join(0.2)
"""


def test_a_part_that_ends_by_itself_is_not_aborted_by_its_lifeline() -> None:
    environ = {**os.environ, LIFELINE: "stdin"}
    with subprocess.Popen(
        [sys.executable, "-c", PART], stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environ
    ) as process:
        assert (process.wait(60), process.stderr.read() if process.stderr else b"") == (0, b"")


STARTING = """
import signal, sys, threading
from pathlib import Path
from cli.settings import Settings
from cli.dev.local_stack import System
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
class Slow(System):
    def _start(self):
        print("starting", flush=True)
        threading.Event().wait(60)
    def _stop(self):
        super()._stop()
        print("ended in order", flush=True)
with Slow(Settings(Path("config.toml")), port=int(sys.argv[1]), folder=Path(sys.argv[2])):
    pass
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_system_told_to_end_while_it_starts_ends_in_order(
    tmp_path: Path, root: Path, number: signal.Signals
) -> None:
    from cli.dev.embedded_redis import free_port

    command = [sys.executable, "-c", STARTING, str(free_port()), str(tmp_path / "var")]
    process = subprocess.Popen(
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    with process, process.stdout as output:
        assert output.readline() == "starting\n"
        process.send_signal(number)
        assert output.readline() == "ended in order\n"


def test_a_key_is_whole_and_the_same_for_all(tmp_path: Path) -> None:
    keys: list[str] = []
    assert together(8, lambda _: keys.append(own_secret_key(tmp_path)[0])) == []
    assert len(set(keys)) == 1
    assert len(keys[0]) >= 32
    assert [path.name for path in tmp_path.iterdir()] == ["secret_key"]
    (tmp_path / "secret_key").write_text("")
    with pytest.raises(ConfigError, match="contains no key"):
        secret_key(tmp_path)
