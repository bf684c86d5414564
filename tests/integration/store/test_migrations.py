"""Migrations: up, down and up again, and the tables they make are those of the code."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import inspect, select

from grading.store import Store, schema
from grading.store.tables import Submission
from grading.store.views.submission import SubmissionView, submission_view
from tests.support.aging import Fresh, everything, fill_0001, played
from tests.support.factories import hand_in
from tests.support.services import SqliteDatabases


def test_up_down_and_up_again(database_url: str) -> None:
    store = Store(database_url)
    assert schema.current(store) is None
    schema.upgrade(database_url)
    assert schema.current(store) == schema.newest()
    schema.downgrade(database_url, "base")
    assert inspect(store.engine).get_table_names() == ["alembic_version"]
    schema.upgrade(database_url)
    schema.require_newest(store)
    store.close()


def test_models_match_migrations(database_url: str) -> None:
    schema.upgrade(database_url)
    command.check(schema._config(database_url))


def test_an_old_database_is_named_with_its_remedy(database_url: str) -> None:
    store = Store(database_url)
    with pytest.raises(schema.StoreOutdated, match="grader db upgrade"):
        schema.require_newest(store)
    store.close()


TWICE = "import sys; from grading.store import schema; schema.upgrade(sys.argv[1])"


def test_upgrades_that_are_started_at_once_wait_for_each_other(sqlite_databases: SqliteDatabases) -> None:
    database_url = sqlite_databases.fresh()
    started = [
        subprocess.Popen([sys.executable, "-c", TWICE, database_url], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [(process.communicate(timeout=60)[1], process.returncode) for process in started] == [("", 0)] * 2
    store = Store(database_url)
    schema.require_newest(store)
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


def test_a_database_of_0001_is_read_and_carried_to_its_end(
    fresh_database: Fresh, redis_url: str, root: Path
) -> None:
    url = fresh_database(fill_0001)
    schema.upgrade(url)
    with played(url, redis_url, root) as system:
        before = views_by_student(system.store)
        assert {name: view.state for name, view in before.items()} == STATES_0001
        seen = before["graded"]
        assert (seen.released, before["unreleased"].released) == (True, False)
        assert seen.grade is not None
        assert (seen.grade.points, seen.grade.report.points) == (20, 20)
        assert {stage.machine for stage in seen.stages} == {"dgx-spark-1"}
        assert before["partial"].grade is not None
        outcomes = system.work_off()
        after = views_by_student(system.store)
        states = {name: view.state for name, view in after.items()}
        assert states == {**dict.fromkeys(STATES_0001, "graded"), "partial": "partial"}
        assert after["graded"] == before["graded"]
        # five rounds were open, one stage of them was done by then
        assert outcomes == {"accepted": 9}
        # and new work comes in beside it
        hand_in(system.store, after["graded"].assignment_id, "running")
        system.work_off()


def test_a_database_of_today_goes_down_to_0001_and_up_again(fresh_database: Fresh) -> None:
    url = fresh_database(fill_0001)
    store = Store(url)
    schema.upgrade(url)
    before = everything(store)
    schema.downgrade(url, "0001")
    assert schema.current(store) == "0001"
    schema.upgrade(url)
    assert everything(store) == before
    store.close()


STATES_0001 = {
    "graded": "graded",
    "unreleased": "graded",
    "partial": "partial",
    "running": "running",
    "again": "running",
    "lost": "running",
    "queued": "queued",
    "received": "received",
}


def views_by_student(store: Store) -> dict[str, SubmissionView]:
    """What pages and API show of each submission."""
    with store.read() as session:
        ids = session.scalars(select(Submission.id))
        return {view.student: view for view in (submission_view(session, one) for one in ids)}


def test_threads_may_upgrade_different_databases_at_once(fresh_database: Fresh) -> None:
    urls = [fresh_database(None) for _ in range(4)]
    with ThreadPoolExecutor(len(urls)) as pool:
        list(pool.map(schema.upgrade, urls))
    for url in urls:
        store = Store(url)
        schema.require_newest(store)
        store.close()
