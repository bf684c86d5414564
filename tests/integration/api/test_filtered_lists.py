"""The API's list of submissions, page by page to its end, beside a list made without the database's help."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Row, delete, select, update
from sqlalchemy.orm import Session

from bench.pages import dataset
from bench.pages.school import School, Size
from grading.store import Store, schema
from grading.store.tables import Assignment, Grade, Round, Submission
from grading.store.views import api_lists
from grading.store.views.api_lists import SubmissionFilters
from tests.support.services import Prepare

SIZE = Size(students=6, courses=3, each=3, assignments=2, submissions=180)
PAGE = 7
START = datetime(2026, 3, 2, tzinfo=UTC)
FIRST, SECOND, THIRD = 1, 2, 3


@pytest.fixture
def graded(fresh_database: Callable[[Prepare | None], str]) -> Iterator[tuple[Store, School]]:
    """Submissions of three courses, of which some are samples, queued, flagged or not released.

    Those of the first student are older than all others, those of the second one newer; two of each time.
    """
    with closing(Store(fresh_database(schema.upgrade))) as store:
        school = dataset.make(store, SIZE)
        with store.write() as session:
            _make_various(session, school)
        yield store, school


def _make_various(session: Session, school: School) -> None:
    own = select(Submission.id, Submission.student_id).order_by(Submission.created_at, Submission.id)
    of_whom = {school.students[0]: -1, school.students[1]: 1}
    ordered = sorted(session.execute(own), key=lambda one: of_whom.get(one.student_id, 0))
    ids = [one.id for one in ordered]
    times = [{"id": id_, "created_at": START + timedelta(hours=n // 2)} for n, id_ in enumerate(ids)]
    session.execute(update(Submission), times)
    session.execute(update(Submission).where(Submission.id.in_(ids[::7])).values(number=-Submission.number))
    session.execute(update(Round).where(Round.submission_id.in_(ids[::6])).values(state="queued"))
    session.execute(delete(Grade).where(Grade.submission_id.in_(ids[::6])))
    session.execute(update(Grade).values(released_at=START, flag_text=""))
    session.execute(update(Grade).where(Grade.submission_id.in_(ids[::2])).values(released_at=None))
    session.execute(update(Grade).where(Grade.submission_id.in_(ids[::5])).values(flag_text="Look."))


def _rows(session: Session) -> list[Row[Any]]:
    """All but samples in order of time, with what filters ask for."""
    query = (
        select(
            Submission.id, Submission.created_at, Submission.assignment_id, Submission.student_id,
            Assignment.course_id, Round.state, Grade.released_at, Grade.flag_text,
        )
        .join(Assignment)
        .join(Round, Round.submission_id == Submission.id)
        .outerjoin(Grade, Grade.round_id == Round.id)
        .where(Submission.number > 0)
    )  # fmt: skip
    return sorted(session.execute(query), key=lambda one: (one.created_at, one.id))


def _matches(one: Row[Any], wanted: SubmissionFilters) -> bool:
    staff = wanted.staff_of is None or one.course_id in wanted.staff_of
    released = one.released_at is not None
    flagged = bool(one.flag_text) and (staff or released)
    return (
        (staff or one.student_id == wanted.reader)
        and wanted.course_id in (None, one.course_id)
        and wanted.assignment_id in (None, one.assignment_id)
        and wanted.student_id in (None, one.student_id)
        and wanted.state in (None, one.state)
        and wanted.flagged in (None, flagged)
        and wanted.released in (None, released)
        and (wanted.since is None or one.created_at >= wanted.since)
        and (wanted.until is None or one.created_at < wanted.until)
        and (not wanted.ids or one.id in wanted.ids)
    )


def _filters(rows: list[Row[Any]], school: School) -> list[dict[str, Any]]:
    middle = START + timedelta(hours=SIZE.submissions // 4)
    return [
        {},
        {"released": True},
        {"released": False},
        {"flagged": True},
        {"flagged": False},
        {"state": "graded"},
        {"state": "queued"},
        {"course_id": FIRST, "released": False},
        {"course_id": THIRD},
        {"assignment_id": school.assignments[0], "released": True},
        {"student_id": school.students[2], "flagged": False},
        {"ids": tuple(one.id for one in rows[::3])},
        {"since": middle, "released": True},
        {"until": middle, "released": False, "flagged": True},
    ]


def _all_pages(session: Session, wanted: SubmissionFilters) -> list[str]:
    found: list[str] = []
    after = None
    while True:
        page = api_lists.list_submissions(session, wanted, after, PAGE)
        found += [one.id for one in page]
        if len(page) < PAGE:
            return found
        after = (page[-1].created_at, page[-1].id)


READERS = (
    (frozenset[int](), 0, False),
    (frozenset({FIRST}), 0, False),
    (frozenset({FIRST}), 1, True),
    (frozenset({FIRST, SECOND}), 0, False),
    (None, 0, True),
)
"""Courses whose staff a reader is (None: all), which student, and whether the oldest come first: what this
student has submitted elsewhere comes last."""


def test_no_page_leaves_out_what_its_reader_may_see(graded: tuple[Store, School]) -> None:
    store, school = graded
    with store.read() as session:
        rows = _rows(session)
        for staff, reader, oldest_first in READERS:
            for values in _filters(rows, school):
                wanted = SubmissionFilters(
                    staff_of=staff, reader=school.students[reader], oldest_first=oldest_first, **values
                )
                expected = [one.id for one in rows if _matches(one, wanted)]
                assert _all_pages(session, wanted) == expected[:: 1 if oldest_first else -1], wanted
