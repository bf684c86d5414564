"""Changes of grades reach listeners, in every process that can change one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from app import create_app
from grading.config.settings import load
from grading.store import Store, schema
from grading.store.grades import listeners
from grading.store.integrations.connect import connect_platforms
from tests.integration.webapp import School
from tests.support.services import SqliteDatabases
from workers.server.context import open_server


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> list[listeners.Listener]:
    """A process that has just begun."""
    none: list[listeners.Listener] = []
    monkeypatch.setattr(listeners, "_listeners", none)
    return none


@pytest.fixture
def store(sqlite_databases: SqliteDatabases) -> Store:
    return Store(sqlite_databases.fresh(schema.upgrade))


def test_without_listeners_no_grade_changes(nobody: list[listeners.Listener], store: Store) -> None:
    with store.write() as session, pytest.raises(listeners.NoListener):
        listeners.grade_changed(session, ["a"])


def test_each_listener_hears_once_and_in_order(nobody: list[listeners.Listener], store: Store) -> None:
    heard: list[Sequence[str]] = []

    def listener(_session: Session, submission_ids: Sequence[str]) -> None:
        heard.append(submission_ids)

    for _ in range(2):
        listeners.on_grade_changed(listener)
    with store.write() as session:
        listeners.grade_changed(session, {"b", "a"})
    assert heard == [["a", "b"]]


def test_the_web_app_and_the_server_connect(
    nobody: list[listeners.Listener], sqlite_databases: SqliteDatabases, root: Path
) -> None:
    url = sqlite_databases.fresh(schema.upgrade)
    create_app(School(url).services)
    assert len(nobody) == 2
    nobody.clear()
    open_server(
        load(root / "config.toml", {"GRADER_DATABASE_URL": url, "GRADER_REDIS_URL": "redis://127.0.0.1:1"})
    )
    assert len(nobody) == 2
    connect_platforms()
    assert len(nobody) == 2
