"""Retention and erasure read what they need, not what there ever was: pinned by plans of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pytest
from sqlalchemy import select, text

from bench.pages import dataset
from bench.pages.school import Size
from bench.years.statements import Sent, sent, work_of
from grading.config.settings import Retention
from grading.store import Store, schema
from grading.store.privacy import erasure, retention
from grading.store.rounds import queue
from grading.store.tables import Round
from tests.support.services import PostgresDatabases

SUBMISSIONS = 3000


@pytest.fixture(scope="module")
def years(postgres_databases: PostgresDatabases) -> Iterator[Store]:
    """Submissions of fifty students, of which retention has stripped all but the newest."""
    url = postgres_databases.fresh()
    schema.upgrade(url)
    with closing(Store(url)) as store:
        size = Size(
            students=50, courses=2, each=2, assignments=10, submissions=SUBMISSIONS, full=20, audit=3000
        )
        dataset.make(store, size)
        yield store


def rows_read(store: Store, asked: list[Sent]) -> int:
    """Rows that PostgreSQL looks at, where tables are too small for it to prefer an index by itself."""
    with store.engine.connect() as connection:
        connection.execute(text("set local enable_seqscan = off"))
        return max(work.rows for work in work_of(connection, asked))


def test_retention_reads_no_rounds_that_it_has_stripped(years: Store) -> None:
    with years.write() as session:
        stripped = session.scalars(select(Round.id).where(Round.prepared.is_not(None))).all()
        session.execute(text("update rounds set prepared = null"))
    assert len(stripped) > SUBMISSIONS / 3  # those of the first course, too
    years.clock_offset_s = timedelta(days=60).total_seconds()
    with sent(years) as asked, years.read() as session:
        counts = retention.count_overdue(session, Retention(results_days=30))
    assert counts["results"] == 0
    assert rows_read(years, [one for one in asked if "rounds.prepared" in one.statement]) < 10


def test_counting_what_waits_reads_each_round_once_whatever_was_counted_in_a_quiet_hour(years: Store) -> None:
    with years.write() as session:
        session.execute(text("update rounds set state = 'queued', priority = 'batch'"))
        session.execute(text("update round_stages set state = 'waiting', priority = 'batch'"))
    with sent(years) as asked, years.read() as session:
        found = queue.count_backlog(session, SUBMISSIONS)
    assert sum(found.values()) > SUBMISSIONS
    assert rows_read(years, asked) < 5 * SUBMISSIONS


def test_an_erasure_reads_the_submissions_of_one_student(years: Store) -> None:
    with sent(years) as asked, years.read() as session:
        _, counts = erasure.count_student(session, "s0003")
    assert counts["submissions"] == counts["rounds"] == SUBMISSIONS / 50
    assert rows_read(years, asked) < SUBMISSIONS / 4
