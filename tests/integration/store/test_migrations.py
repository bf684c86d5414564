"""Migrations: up, down and up again, and the tables they make are those of the code."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from alembic import command
from sqlalchemy import inspect, text

from grading.store import Store, schema
from grading.store.audit import write_audit
from grading.store.database import now
from grading.store.tables import Identity, User
from tests.support.aging import Fresh
from tests.support.services import SqliteDatabases


def test_up_down_and_up_again(database_url: str) -> None:
    store = Store(database_url)
    assert schema.current_revision(store) is None
    schema.upgrade(database_url)
    assert schema.current_revision(store) == schema.newest_revision()
    schema.downgrade(database_url, "base")
    assert inspect(store.engine).get_table_names() == ["alembic_version"]
    schema.upgrade(database_url)
    schema.require_usable(store)
    store.close()


def test_models_match_migrations(database_url: str) -> None:
    schema.upgrade(database_url)
    command.check(schema._config(database_url))


def test_sign_ins_that_were_linked_before_are_known_as_such(database_url: str) -> None:
    """By the audit log, so that a reset of the password locks them; what a rule linked stays."""
    schema.upgrade(database_url)
    with closing(Store(database_url)) as store:
        with store.write() as session:
            for number in (1, 2):
                session.add(User(id=number, name="", created_at=now(session)))
                for provider, action in (("oidc:a", "link"), ("oidc:b", "link_by_rule"), ("local", "link")):
                    session.add(Identity(user_id=number, provider=provider, subject=str(number)))
                    detail = {"provider": provider}
                    write_audit(session, "user:1", f"sign_on.{action}", "user:1", detail)
            moment = now(session)
        schema.downgrade(database_url, "0023_since_0002")
        schema.upgrade(database_url)
        with store.read() as session:
            found = session.query(Identity).filter(Identity.linked_at.is_not(None)).all()
            assert [(one.user_id, one.provider, one.linked_at) for one in found] == [(1, "oidc:a", moment)]


def test_an_old_database_is_named_with_its_remedy(database_url: str) -> None:
    store = Store(database_url)
    with pytest.raises(schema.StoreOutdated, match="grader db upgrade"):
        schema.require_usable(store)
    store.close()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://grader:secret@127.0.0.1:1/grader", "Connection refused"),
        ("sqlite:////", "unable to open database file"),
    ],
)
def test_a_database_that_is_away_is_one_sentence(url: str, reason: str) -> None:
    with closing(Store(url)) as store:
        for refused in (lambda: schema.upgrade(url), lambda: schema.require_usable(store)):
            with pytest.raises(schema.DatabaseAway, match=f"{reason}.*write @ as %40") as raised:
                refused()
            assert "\n" not in raised.value.message


TWICE = "import sys; from grading.store import schema; schema.upgrade(sys.argv[1])"


def test_upgrades_that_are_started_at_once_wait_for_each_other(sqlite_databases: SqliteDatabases) -> None:
    database_url = sqlite_databases.fresh()
    started = [
        subprocess.Popen([sys.executable, "-c", TWICE, database_url], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [(process.communicate(timeout=60)[1], process.returncode) for process in started] == [("", 0)] * 2
    store = Store(database_url)
    schema.require_usable(store)
    store.close()


def test_a_new_database_another_writes_to_is_waited_for(sqlite_databases: SqliteDatabases) -> None:
    """SQLite refuses to change the mode of a file another connection writes to, without waiting."""
    url = sqlite_databases.fresh()
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("CREATE TABLE anything (x)")
        store = Store(url)
        with ThreadPoolExecutor(1) as pool:
            opened = pool.submit(lambda: store.engine.connect().close())
            with pytest.raises(TimeoutError):
                opened.result(timeout=0.3)
            other.execute("COMMIT")
            opened.result(timeout=30)
    store.close()


def test_a_database_of_another_version_is_refused_with_a_sentence(database_url: str) -> None:
    schema.upgrade(database_url)
    store = Store(database_url)
    with store.write() as session:
        session.execute(text("update alembic_version set version_num = '9999'"))
    for refused in (lambda: schema.upgrade(database_url), lambda: schema.require_usable(store)):
        with pytest.raises(schema.StoreOutdated, match="revision 9999, which belongs to another version"):
            refused()
    store.close()


def test_threads_may_upgrade_different_databases_at_once(fresh_database: Fresh) -> None:
    urls = [fresh_database(None) for _ in range(2)]
    with ThreadPoolExecutor(len(urls)) as pool:
        list(pool.map(schema.upgrade, urls))
    for url in urls:
        store = Store(url)
        schema.require_usable(store)
        store.close()
