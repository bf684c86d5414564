"""SQL and Redis away, full or locked, and a web app that dies between commit and announcement."""

from __future__ import annotations

import io
import logging
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest
import redis
from flask.testing import FlaskClient
from sqlalchemy import func, select, text, update
from werkzeug.test import TestResponse

from app import Services
from cli.dev.embedded_redis import RedisProcess, start_redis
from grading.broker.dispatch import Dispatch, open_dispatch
from grading.broker.heartbeats import Heartbeat
from grading.config.settings import load
from grading.domain.round_states import RoundState, RunState
from grading.store import Store, schema, tables
from grading.store.database import now
from tests.integration.webapp import CODE, School, make_app
from tests.support.factories import add_assignment, add_student
from tests.support.services import Postgres, PostgresDatabases, SqliteDatabases, own_postgres
from tests.support.system import (
    ASSIGNMENT,
    Site,
    assert_graded_once,
    close_dispatch,
    count_final,
    furnish,
    site,
    until,
)
from workers.server.context import Server, open_server
from workers.server.lost_runs import NOWHERE_S
from workers.server.sweeper import UNANNOUNCED_S, Sweeper

BOTH = {stage: {"engine": "instant", "model": "m"} for stage in ("analysis", "feedback")}
ONE_MACHINE = """
[server]
uploads_per_minute = 100000
api_per_minute = 10000000

[[machines]]
name = "m"
slots = 4
[machines.stages]
analysis = { engine = "instant", model = "m" }
feedback = { engine = "instant", model = "m" }
"""


@contextmanager
def server_side(root: Path, database_url: str, redis_url: str) -> Iterator[Server]:
    environ = {"GRADER_DATABASE_URL": database_url, "GRADER_REDIS_URL": redis_url}
    made = open_server(load(root / "config.toml", environ))
    yield made
    close_dispatch(made.dispatch)
    made.store.close()


def upload(school: School, header: dict[str, str], key: str = "") -> TestResponse:
    fields = {"assignment": "ba/hw1", "student": "anna", "files": (io.BytesIO(CODE), "work.py")}
    headers = {**header, "Idempotency-Key": key} if key else header
    return school.client().post("/api/v1/submissions", data=fields, headers=headers)


# --- a web app that dies between commit and announcement -------------------------------------------

CRASHING_WEB = """
import os, sys
import psycopg
from app.submissions import intake as submission_intake
from grading.documents import UploadedFile, read
from grading.documents.limits import Limits
from grading.store import Store
from grading.store.submissions.intake import IncomingSubmission
from types import SimpleNamespace

_, url, assignment, *students = sys.argv

def die(round_id):
    print(round_id, flush=True)
    os._exit(77)

content = read([UploadedFile("work.R", b"x <- 1")], Limits())
for student in students:
    child = os.fork()
    if child == 0:
        given = SimpleNamespace(store=Store(url), dispatch=SimpleNamespace(announce=die))
        submission_intake.services = lambda: given
        incoming = IncomingSubmission(int(assignment), int(student), "form", content)
        submission_intake.accept(lambda session: incoming)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 77
"""


def crash_web(store: Store, count: int) -> set[str]:
    """Submit, each time in a process that ends right after the commit; the rounds."""
    assignment = add_assignment(store, release="at_once")
    students = [str(add_student(store, f"s-{number}")) for number in range(count)]
    ended = subprocess.run(
        [sys.executable, "-c", CRASHING_WEB, store.url, str(assignment), *students],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    rounds = set(ended.stdout.split())
    assert len(rounds) == count
    return rounds


def states(store: Store) -> Counter[str]:
    with store.read() as session:
        return Counter(session.scalars(select(tables.Round.state)))


def test_what_a_dying_web_app_did_not_announce_is_shared_by_sweepers_and_sent(
    postgres_databases: PostgresDatabases, redis_url: str, root: Path
) -> None:
    url = postgres_databases.fresh(schema.upgrade)
    with server_side(root, url, redis_url) as one, server_side(root, url, redis_url) as other:
        rounds = crash_web(one.store, 6)
        assert states(one.store) == {RoundState.RECEIVED: 6}
        one.dispatch.registry.heartbeat(Heartbeat("p", "dgx-spark-2", 64, 0, BOTH))
        prepared: list[str] = []
        for server in (one, other):
            server.store.clock_offset_s = UNANNOUNCED_S + 1
        sweepers = [Sweeper(one), Sweeper(other)]
        for sweeper in sweepers:
            remember(sweeper, prepared)
        for _ in range(6):  # a sweep prepares for 3 s only
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda sweeper: sweeper.step(), sweepers))
            if len(prepared) >= len(rounds):
                break
        assert sorted(prepared) == sorted(rounds)
        sweepers[0].step()
        assert states(one.store) == {RoundState.RUNNING: 6}
        assert sum((one.dispatch.backlog() or {}).get(name, 0) for name in BOTH) == 12


def remember(sweeper: Sweeper, prepared: list[str]) -> None:
    prepare = sweeper._prepare

    def noted(round_id: str) -> None:
        prepared.append(round_id)
        prepare(round_id)

    sweeper._prepare = noted  # type: ignore[method-assign]


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_web_crash_after_the_commit_is_made_up_for_within_40_s(
    fresh_database: Callable[..., str], redis_url: str, tmp_path: Path
) -> None:
    with site(tmp_path, ONE_MACHINE, fresh_database(schema.upgrade), redis_url) as made:
        for name in ("sweep-1", "sweep-2"):
            made.parts.start(name, "sweep")
        made.parts.start("store", "store")
        made.dispatch.registry.heartbeat(Heartbeat("p", "m", 256, 0, BOTH))
        rounds = crash_web(made.store, 100)

        def enqueued() -> bool:
            made.dispatch.registry.heartbeat(Heartbeat("p", "m", 256, 0, BOTH))
            return states(made.store) == {RoundState.RUNNING: len(rounds)}

        until(enqueued, 60, "all are enqueued")
        with made.store.read() as session:
            query = select(tables.Round.created_at, tables.Round.dispatched_at)
            waits = sorted((sent - came).total_seconds() for came, sent in session.execute(query) if sent)
        print(f"enqueued after the crash: median {waits[len(waits) // 2]:.1f} s, longest {waits[-1]:.1f} s")
        assert waits[-1] <= 40


# --- Redis ----------------------------------------------------------------------------------------


@pytest.fixture
def full_redis(redis_server: RedisProcess, redis_url: str) -> Iterator[Callable[[bool], None]]:
    """Whether Redis has room for anything."""
    with redis.Redis.from_url(redis_url) as client:

        def full(yes: bool) -> None:
            client.config_set("maxmemory", 1 if yes else 0)

        yield full
        full(False)


def test_uploads_are_accepted_while_redis_has_no_memory(
    sqlite_databases: SqliteDatabases,
    redis_url: str,
    root: Path,
    full_redis: Callable[[bool], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    url = sqlite_databases.fresh(schema.upgrade)
    school = School(url)
    header = school.token("anna")
    with server_side(root, url, redis_url) as server:
        school.app = make_app(replace(school.services, dispatch=server.dispatch))
        server.dispatch.registry.heartbeat(Heartbeat("p", "dgx-spark-2", 64, 0, BOTH))
        full_redis(True)
        assert [upload(school, header).status_code for _ in range(3)] == [202, 202, 202]
        for page in ("/readyz", "/metrics"):
            assert school.client().get(page).status_code == 200
        server.store.clock_offset_s = UNANNOUNCED_S + 1
        clock = [1000.0]
        sweeper = Sweeper(server, clock=lambda: clock[0])
        sweeper.step()
        assert states(server.store).keys() <= {RoundState.QUEUED, RoundState.RUNNING}
        full_redis(False)
        server.dispatch.registry.heartbeat(Heartbeat("p", "dgx-spark-2", 64, 0, BOTH))
        for clock[0] in (1100.0, 1100.0 + NOWHERE_S + 1):  # what was written down but not sent is sent again
            sweeper.step()
        assert states(server.store) == {RoundState.RUNNING: 3}
        waiting = server.dispatch.registry.waiting(list(BOTH))
        with server.store.read() as session:
            query = select(tables.Run.id).where(tables.Run.state == RunState.DISPATCHED)
            assert set(session.scalars(query)) <= waiting
        assert len(waiting) == 6
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    school.close()


@pytest.mark.soak
@pytest.mark.timeout(200)
def test_processes_outlive_a_redis_without_memory(tmp_path: Path) -> None:
    count, busy = 20, "slots = 4\n[machines.engines.instant]\noptions = { seconds = 0.5 }"
    config, database = ONE_MACHINE.replace("slots = 4", busy), f"sqlite:///{tmp_path / 'grader.db'}"
    with (
        start_redis(tmp_path / "redis") as own,
        redis.Redis.from_url(own.url) as admin,
        site(tmp_path, config, database, own.url) as made,
        web_app(made) as client,
    ):
        for part in (["store"], ["sweep"], ["worker", "m"]):
            made.parts.start(part[-1], *part)
        made.until_alive("m")
        header = {"Authorization": f"Bearer {furnish(made.store, '').token}"}
        first = [submit(client, header, f"a-{number}").status_code for number in range(count)]
        until_graded(made.store, 3)
        admin.config_set("maxmemory", 1)
        then = [submit(client, header, f"b-{number}").status_code for number in range(count)]
        time.sleep(15)  # long enough that machines would count as dead if Redis were not
        admin.config_set("maxmemory", 0)
        since = time.monotonic()
        made.until_final(2 * count, 90)
        print(f"all graded {time.monotonic() - since:.1f} s after Redis had memory again")
        assert {*first, *then} == {202}
        assert [process.poll() for process in made.parts.running.values()] == [None, None, None]
        assert_graded_once(made.store, 2 * count)


# --- SQL ------------------------------------------------------------------------------------------


def test_a_database_locked_for_long_is_away_not_broken(tmp_path: Path) -> None:
    school = School(tmp_path)
    header = school.token("anna")
    impatient = Store(school.store.url, wait_s=0.2)
    school.app = make_app(replace(school.services, store=impatient))
    with school.store.write() as session:
        session.execute(text("select 1"))
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: upload(school, header), range(4)))
    for answer in answers:
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "30")
        assert answer.get_json()["code"] == "store_away"
    assert upload(school, header).status_code == 202
    assert school.count(tables.Submission) == 1
    impatient.close()
    school.close()


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with own_postgres(durable=True) as made:
        yield made


@dataclass
class Uploads:
    """People who submit one after the other, each again until it is accepted."""

    post: Callable[[str], TestResponse]
    """Submits under a key."""
    found: list[tuple[float, int, str]] = field(default_factory=list)
    """When, status and id of each answer."""
    stop: threading.Event = field(default_factory=threading.Event)

    def keep_on(self, who: int) -> None:
        number = 0
        while not self.stop.is_set():
            answer = self.post(f"{who}-{number}")
            self.found.append((time.monotonic(), answer.status_code, (answer.get_json() or {}).get("id", "")))
            if answer.status_code == 202:
                number += 1
            else:
                assert answer.headers["Retry-After"] == "30"
            self.stop.wait(0.02)

    @contextmanager
    def under_way(self) -> Iterator[None]:
        with ThreadPoolExecutor(4) as pool:
            people = [pool.submit(self.keep_on, who) for who in range(4)]
            try:
                yield
            finally:
                self.stop.set()
                for one in people:
                    one.result()

    def count(self, status: int) -> int:
        return sum(one == status for _, one, _ in list(self.found))

    def over_restart(self, postgres: Postgres) -> float:
        """Restart PostgreSQL under load; seconds until the last 503 since it answered again."""
        before = self.count(202), self.count(503)
        until(lambda: self.count(202) >= before[0] + 20, 30, "uploads before the restart")
        postgres.stop()
        until(lambda: self.count(503) > before[1], 20, "an upload while it is away")
        postgres.start()
        back, accepted = time.monotonic(), self.count(202)
        until(lambda: self.count(202) >= accepted + 20, 40, "uploads after the restart")
        return max(moment for moment, status, _ in self.found if status != 202) - back

    def accepted(self) -> set[str]:
        return {name for _, _, name in self.found if name}


def test_a_postgresql_restart_costs_nothing_but_time(postgres: Postgres) -> None:
    school = School(postgres.url)
    header = school.token("anna")
    uploads = Uploads(lambda key: upload(school, header, key))
    with uploads.under_way():
        last = uploads.over_restart(postgres)
    print(f"last 503 {last:+.2f} s after PostgreSQL answered again; {uploads.count(202)} accepted")
    assert last < 30
    assert {status for _, status, _ in uploads.found} == {202, 503}
    with school.store.read() as session:
        assert set(session.scalars(select(tables.Submission.id))) == uploads.accepted()
        prepare, event = (tables.Outbox.kind == "prepare", tables.Outbox.kind == "event")
        for kind in (prepare, event):
            rows = session.execute(select(func.count()).select_from(tables.Outbox).where(kind)).scalar_one()
            assert rows == len(uploads.accepted()) == uploads.count(202)
    school.close()


def until_graded(store: Store, count: int) -> None:
    until(lambda: count_final(store) >= count, 60, f"{count} are graded")


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_postgresql_restarts_while_submissions_are_graded(redis_url: str, tmp_path: Path) -> None:
    with (
        own_postgres(durable=True) as postgres,
        site(tmp_path, ONE_MACHINE, postgres.url, redis_url) as made,
        web_app(made) as client,
    ):
        for part in (["store"], ["sweep"], ["worker", "m"]):
            made.parts.start(part[-1], *part)
        header = {"Authorization": f"Bearer {furnish(made.store, '').token}"}
        uploads = Uploads(lambda key: submit(client, {**header, "Idempotency-Key": key}, key))
        with uploads.under_way():
            lasts = []
            for number in range(4):
                until_graded(made.store, 25 * (number + 1))
                lasts.append(uploads.over_restart(postgres))
        since = time.monotonic()
        made.until_final(uploads.count(202), 120)
        assert_graded_once(made.store, uploads.count(202))
        print(
            f"4 restarts: last 503 {max(lasts):+.2f} s after PostgreSQL answered; {uploads.count(202)} ",
            end="",
        )
        print(f"accepted, all graded {time.monotonic() - since:.1f} s after the last")
        assert max(lasts) < 30


# --- several of each ------------------------------------------------------------------------------


class ForgetsSome(Dispatch):
    """Does not announce a third of the submissions."""

    def announce(self, round_id: str) -> bool:
        return int(round_id, 16) % 3 > 0 and super().announce(round_id)


def submit(client: FlaskClient, header: dict[str, str], student: str) -> TestResponse:
    fields = {"assignment": ASSIGNMENT, "student": student, "files": (io.BytesIO(b"x <- 1"), "work.R")}
    one_of_its_own = client.application.test_client()
    return one_of_its_own.post("/api/v1/submissions", data=fields, headers=header)


@contextmanager
def web_app(made: Site) -> Iterator[FlaskClient]:
    """A web app with connections of its own."""
    store, dispatch = Store(made.store.url), open_dispatch(made.config)
    forgets = ForgetsSome(dispatch.config, dispatch.celery, dispatch.registry)
    yield make_app(Services(made.config, store, forgets, "only for tests")).test_client()
    close_dispatch(dispatch)
    store.close()


@contextmanager
def sweeper(made: Site) -> Iterator[None]:
    """A sweeper with connections of its own."""
    server, stop = open_server(made.config), threading.Event()
    thread = threading.Thread(target=Sweeper(server).run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        close_dispatch(server.dispatch)
        server.store.close()


# where each part has a host of its own, the database is PostgreSQL
@pytest.mark.parametrize(
    "databases", [pytest.param("sqlite", marks=pytest.mark.soak), "postgresql"], indirect=True
)
def test_several_web_apps_stores_and_sweepers_grade_everything_once(
    fresh_database: Callable[..., str], redis_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    count = 30
    with (
        site(tmp_path, ONE_MACHINE, fresh_database(schema.upgrade), redis_url) as made,
        ExitStack() as several,
    ):
        for part in ("store-1", "store-2"):
            made.parts.start(part, "store")
        made.parts.start("m", "worker", "m")
        for _ in range(2):
            several.enter_context(sweeper(made))
        header = {"Authorization": f"Bearer {furnish(made.store, '').token}"}
        clients = [several.enter_context(web_app(made)) for _ in range(2)]

        def post(number: int) -> int:
            fields = {"assignment": ASSIGNMENT, "student": f"s-{number}"}
            files = {"files": (io.BytesIO(b"x <- 1"), "work.R")}
            answer = (
                clients[number % 2]
                .application.test_client()
                .post("/api/v1/submissions", data={**fields, **files}, headers=header)
            )
            return answer.status_code

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(post, range(count))) == [202] * count
        overdue(made.store)
        made.until_final(count, 60)
        assert_graded_once(made.store, count)
        with made.store.read() as session:
            assert session.execute(select(func.count()).select_from(tables.Run)).scalar_one() == 2 * count
        for part in list(made.parts.running):
            made.parts.kill(part)  # nothing is left to be finished
    for log in tmp_path.glob("*.log"):
        said = log.read_text()
        assert not re.search(r" (ERROR|CRITICAL) |Traceback", said), said
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def overdue(store: Store) -> None:
    """What was not announced waits no longer for its announcement."""
    with store.write() as session:
        long_ago = now(session) - timedelta(minutes=2)
        waits = (tables.Outbox.kind == "prepare", tables.Outbox.tries == 0, tables.Outbox.done_at.is_(None))
        session.execute(update(tables.Outbox).where(*waits).values(not_before=long_ago))
