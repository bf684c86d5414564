"""A rotated password of Redis or the database is told as such, and not as a service that is away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from redis.exceptions import ConnectionError as RedisConnectionError
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from cli.deploy.services import Heartbeats
from cli.deploy.ssh import MachineError
from cli.main import grader
from grading.broker import away as redis_away
from grading.broker.dispatch import AWAY, Dispatch, open_dispatch
from grading.config.settings import Config
from grading.store import Store, schema
from grading.store import away as sql_away
from grading.store.accounts import users
from grading.store.assignments import versions
from tests.integration.webapp import School, configuration
from tests.support.postgres_servers import refusing_postgres
from tests.support.redis_servers import client, redis_server
from tests.support.system import close_dispatch

SAID = "redis refuses the password of GRADER_REDIS_URL"


@pytest.fixture
def rotated(tmp_path: Path) -> Iterator[Config]:
    """The configuration with an address whose password Redis has no more."""
    with redis_server(tmp_path / "redis", "requirepass new") as port:
        redis = configuration().redis.model_copy(update={"url": f"redis://:old@127.0.0.1:{port}/0"})
        yield configuration().model_copy(update={"redis": redis})


@pytest.fixture
def dispatch(rotated: Config) -> Iterator[Dispatch]:
    made = open_dispatch(rotated)
    yield made
    close_dispatch(made)


def test_all_clients_tell_it_from_a_redis_that_is_away(
    rotated: Config, dispatch: Dispatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert dispatch.backlog() is None
    assert dispatch.password_refused()
    assert [line.message.partition(":")[0] for line in caplog.records] == [SAID]
    with pytest.raises(AWAY) as sent:  # by Celery's client
        dispatch.celery.connection_for_write().channel()
    assert redis_away.refuses_password(sent.value)
    with client(rotated.redis.url.replace(":old@", ":new@")) as admin:
        admin.config_set("requirepass", "old")
        dispatch.breaker._open_until = 0.0
        assert dispatch.backlog() is not None
        assert not dispatch.password_refused()
        admin.config_set("requirepass", "")
    assert redis_away.why_away(RedisConnectionError("refused")) == "redis is unavailable"


def test_ready_and_the_overview_say_it(tmp_path: Path) -> None:
    school = School(tmp_path)
    school.dispatch.away = school.dispatch.refused = True
    ready = school.client().get("/readyz").get_json()
    assert ready["redis"] == "password refused; work waits in the database until GRADER_REDIS_URL is right"
    page = school.client("admin").get("/operations").get_data(as_text=True)
    assert "Redis refuses the password." in page
    assert "Redis is not reachable." not in page
    school.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["machines"], "Redis refuses the password in GRADER_REDIS_URL. The state of"),
        (["drain", "one"], "Redis refuses the password in GRADER_REDIS_URL. The change is stored"),
        (["erase", "s-1", "--yes"], "Redis refuses the password, and it can hold the student's work"),
    ],
)
def test_commands_say_it(rotated: Config, tmp_path: Path, words: list[str], said: str) -> None:
    (tmp_path / "config.toml").write_text(CONFIG)
    environ = {"GRADER_REDIS_URL": rotated.redis.url, "GRADER_DATABASE_URL": f"sqlite:///{tmp_path}/g.db"}
    schema.upgrade(environ["GRADER_DATABASE_URL"])
    with closing(Store(environ["GRADER_DATABASE_URL"])) as store, store.write() as session:
        course = versions.find_or_create_course(session, "ba").id
        users.find_or_create_student(session, "local", "s-1", "Eva", "", course)
    result = CliRunner(env=environ).invoke(grader, ["--config", str(tmp_path / "config.toml"), *words])
    assert said in f"{result.output} {result.exception}"


CONFIG = """
[[machines]]
name = "one"
[machines.stages]
analysis = { engine = "instant", model = "m" }
feedback = { engine = "instant", model = "m" }
"""


def test_deploy_says_it(rotated: Config) -> None:
    with Heartbeats(rotated) as heartbeats, pytest.raises(MachineError, match="refuses the password"):
        heartbeats.ages()


def test_a_database_says_it(tmp_path: Path) -> None:
    with refusing_postgres() as port:
        store = Store(f"postgresql://grader:old@127.0.0.1:{port}/grader")
        with pytest.raises(OperationalError) as refused, store.read() as session:
            session.execute(text("select 1"))
        assert sql_away.why_away(refused.value) == "the database refuses the password of GRADER_DATABASE_URL"
        with pytest.raises(schema.DatabaseAway, match="refuses the password of GRADER_DATABASE_URL"):
            schema.require_usable(store)
        school = School(tmp_path)
        school.store.close()
        school.services = replace(school.services, store=store)
        ready = school.client().get("/readyz")
        assert ready.status_code == 503
        assert ready.get_json()["database"].startswith("password refused; put the right one")
        store.close()
