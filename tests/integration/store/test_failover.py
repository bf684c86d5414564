"""A PostgreSQL that is not the primary any more, and one that begins a new history."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from sqlalchemy import text
from sqlalchemy.exc import InternalError, OperationalError

from grading.store import Store, schema
from grading.store.database import is_unavailable
from grading.store.failover import SKIPPED_NUMBERS, Successors
from tests.support.services import PostgresDatabases

NEXT = text("select nextval('users_id_seq')")


@pytest.fixture
def url(postgres_databases: PostgresDatabases) -> Iterator[str]:
    made = postgres_databases.fresh(schema.upgrade)
    yield made
    postgres_databases.drop(made)


def test_a_demoted_primary_is_away_and_left(url: str) -> None:
    store = Store(url)
    with store.write() as session:
        before = session.execute(text("select pg_backend_pid()")).scalar_one()
    with pytest.raises(InternalError) as raised, store.write() as session:
        session.execute(text("set transaction read only"))  # as all are of a server that was demoted
        session.execute(NEXT)
    assert is_unavailable(raised.value)
    with store.write() as session:
        session.execute(NEXT)
        assert session.execute(text("select pg_backend_pid()")).scalar_one() != before
    store.close()


def test_a_write_where_only_reading_was_meant_stays_an_error(url: str) -> None:
    store = Store(url)
    with store.read() as session, pytest.raises(InternalError) as raised:
        session.execute(NEXT)
    assert not is_unavailable(raised.value)
    store.close()


def test_a_new_history_skips_numbers_once(url: str) -> None:
    with closing(Store(url)) as store, store.write() as session:
        first = session.execute(NEXT).scalar_one()
        session.execute(text("update database_histories set identifier = '7/00000001'"))
    for expected in (first + SKIPPED_NUMBERS + 1, first + SKIPPED_NUMBERS + 2):
        with closing(Store(url)) as store, store.write() as session:
            assert session.execute(NEXT).scalar_one() == expected
            assert session.execute(text("select count(*) from database_histories")).scalar_one() == 2


def test_sequences_that_the_user_may_not_move_are_told_of_once_and_moved_when_it_may(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(Store(url)) as store:
        with store.write() as session:
            session.execute(text("update database_histories set identifier = '7/00000001'"))
            session.execute(text("create role numberless"))
            session.execute(text("grant all on all tables in schema public to numberless"))
        try:
            with closing(Store(f"{url}?options=-c%20role%3Dnumberless")) as limited:
                for _ in range(2):
                    with limited.read() as session:
                        session.execute(text("select 1"))
                    limited.engine.dispose()
            told = [one for one in caplog.messages if "permission denied for sequence" in one]
            assert len(told) == 1
        finally:
            with store.write() as session:
                session.execute(text("drop owned by numberless"))
                session.execute(text("drop role numberless"))
    with closing(Store(url)) as store, store.write() as session:
        assert session.execute(NEXT).scalar_one() > SKIPPED_NUMBERS


def test_an_old_primary_that_came_back_is_refused(url: str) -> None:
    store, successors = Store(url), Successors()
    successors.watch(store.engine)
    with store.read() as session:
        session.execute(text("select 1"))
    (cluster,) = successors.newest
    successors.newest[cluster] += 1
    store.engine.dispose()
    with pytest.raises(OperationalError, match="an old primary") as raised, store.read() as session:
        session.execute(text("select 1"))
    assert is_unavailable(raised.value)
    store.close()
