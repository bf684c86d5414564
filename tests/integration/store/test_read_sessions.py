"""Sessions that only look: what they give, and that a database which was started again is no error."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from sqlalchemy import select, text

from grading.store import Store, database, tables
from grading.store.learning_platforms import all_tables


@pytest.fixture
def store(database_url: str) -> Store:
    made = Store(database_url)
    all_tables().create_all(made.engine)
    with made.write() as session:
        session.add(tables.User(name="Ada", email="", created_at=datetime(2026, 11, 1, tzinfo=UTC)))
    return made


def test_columns_and_objects_are_as_in_every_session(store: Store) -> None:
    with store.read_autocommit() as session, store.read() as other:
        row = session.execute(select(tables.User.id, tables.User.name, tables.User.created_at)).one()
        assert row == other.execute(select(tables.User.id, tables.User.name, tables.User.created_at)).one()
        assert row.created_at == datetime(2026, 11, 1, tzinfo=UTC)
        user, name = session.execute(select(tables.User, tables.User.name)).one()
        assert isinstance(user, tables.User)
        assert user.name == name == "Ada"
    store.close()


def test_a_look_sees_what_was_committed_since_the_last_one(store: Store) -> None:
    with store.read_autocommit() as session:
        assert session.execute(select(tables.User.name)).scalar_one() == "Ada"
    with store.write() as session:
        session.execute(text("update users set name = 'Ada L.'"))
    with store.read_autocommit() as session:
        assert session.execute(select(tables.User.name)).scalar_one() == "Ada L."
    store.close()


def test_connections_that_were_ended_are_made_anew(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.read_autocommit() as session:
        assert session.execute(select(tables.User.name)).scalar_one() == "Ada"
    if store.engine.dialect.name == "postgresql":
        monkeypatch.setattr(database, "PING_AFTER_S", -1.0)
        ends = (
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and "
        )
        with store.engine.connect() as connection:
            connection.execute(text(ends + "pid <> pg_backend_pid()"))
    with store.read_autocommit() as session:
        assert session.execute(select(tables.User.name)).scalar_one() == "Ada"
    store.close()


def test_text_of_a_time_is_utc_unless_it_names_another_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        noon = datetime(2026, 11, 1, 12, tzinfo=UTC)
        assert database.parse_timestamp("2026-11-01 12:00:00") == noon
        assert database.parse_timestamp("2026-11-01 14:00:00+02:00") == noon
    finally:
        monkeypatch.undo()
        time.tzset()
