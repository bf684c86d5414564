"""Lists, retention and erasure read what they need, not what there ever was: pinned by PostgreSQL's plans."""

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
from grading.domain.rubric import Criterion, Rubric
from grading.store import Store, schema
from grading.store.assignments import versions
from grading.store.assignments.versions import NewVersion
from grading.store.privacy import erasure, retention
from grading.store.rounds import queue
from grading.store.tables import Assignment, Course, Membership, Round, Submission
from grading.store.views import api_lists, newest_submissions, submission_lists
from grading.store.views.api_lists import SubmissionFilters
from grading.store.views.submission_lists import Filters
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
        for way in ("seqscan", "hashjoin", "mergejoin"):
            connection.execute(text(f"set local enable_{way} = off"))
        return max(work.rows for work in work_of(connection, asked))


@pytest.fixture(scope="module")
def assistant(years: Store) -> int:
    """A student of both courses who grades in a third one, which is new."""
    with years.write() as session:
        student = session.scalars(
            select(Membership.user_id).where(Membership.role == "student").order_by(Membership.user_id)
        ).first()
        assert student is not None
        rubric = Rubric(criteria=(Criterion(id="c0", title="Criterion", points=10, stage="analysis"),))
        versions.import_version(session, "new", NewVersion("hw", "Homework", "python", "at_once", "", rubric))
        new = session.scalars(select(Course).where(Course.slug == "new")).one()
        session.add(Membership(user_id=student, course_id=new.id, role="grader"))
    return student


OTHER = 2
"""The second course."""


@pytest.mark.parametrize("lateral", [True, False])
def test_pages_hold_what_their_reader_may_see_in_order(
    years: Store, assistant: int, lateral: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not lateral:
        monkeypatch.setattr(newest_submissions, "is_lateral", lambda _session: False)
    with years.read() as session:
        rows = session.execute(
            select(Submission.id, Submission.created_at, Assignment.course_id, Submission.student_id)
            .join(Assignment)
            .order_by(Submission.created_at.desc(), Submission.id.desc())
        ).all()
        for staff in (frozenset({1}), frozenset({1, OTHER})):
            mine = [one[0] for one in rows if one[2] in staff or one[3] == assistant]
            pages = [
                submission_lists.list_submissions(session, Filters(course_ids=staff, own=assistant), page)
                for page in (1, 2)
            ]
            assert [one.id for page in pages for one in page.items] == mine[:50]


def test_the_list_of_a_new_course_reads_none_of_other_courses(years: Store, assistant: int) -> None:
    with years.read() as session:
        new = session.scalars(select(Course.id).where(Course.slug == "new")).one()
        own = len(session.scalars(select(Submission.id).where(Submission.student_id == assistant)).all())
        with sent(years) as asked:
            wanted = SubmissionFilters(staff_of=frozenset({new}), reader=assistant)
            assert len(api_lists.list_submissions(session, wanted, None, 200)) == own
            page = submission_lists.list_submissions(
                session, Filters(course_ids=frozenset({new}), own=assistant)
            )
            assert page.total == own
    assert rows_read(years, asked) < SUBMISSIONS / 3


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


def test_retention_deletes_many_rows_with_each_statement(years: Store) -> None:
    years.clock_offset_s = timedelta(days=60).total_seconds()
    with sent(years) as asked, years.write() as session:
        done = retention.delete_chunk(session, Retention(audit_days=30))
    assert done["audit"] == retention.MANY
    assert sum("DELETE FROM audit" in one.statement for one in asked) <= retention.MANY / 50
