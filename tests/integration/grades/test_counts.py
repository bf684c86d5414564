"""Home, the list of a review and statistics say the same numbers of one class, in every state."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from grading.domain.round_states import RoundState
from grading.statistics.overview import overview
from grading.store import tables
from grading.store.database import now
from grading.store.reporting.class_statistics import load_submissions
from grading.store.views import review_worklist, staff_home
from grading.store.views.review_worklist import Filters
from tests.integration.grades.classroom import a_report, student
from tests.integration.webapp import School

PARTIAL: dict[str, Any] = {"status": RoundState.PARTIAL, "points": None}
FILTERS = {
    "submitted": Filters(),
    "to_review": Filters(look="to_review"),
    "held": Filters(look="held"),
    "reviewed": Filters(look="reviewed"),
    "partial": Filters(state="partial"),
    "failed": Filters(state="failed"),
    "in_progress": Filters(state="open"),
}
LATEST = {
    "submitted": 11, "to_review": 4, "held": 2, "reviewed": 1, "partial": 1, "failed": 1, "in_progress": 3,
}  # fmt: skip
BEST = {**LATEST, "to_review": 5, "in_progress": 2}


def submitted(school: School, name: str, **more: Any) -> str:
    """A submission of a student, who may be new; graded unless `state` says where it is."""
    if name not in school.users:
        student(school, name)
    made = school.submit(name)
    if "state" in more:
        change_round(school, made, **more)
    else:
        school.grade(made, a_report(3, 3, **more))
    return made


def change_round(school: School, submission: str, **values: Any) -> None:
    with school.store.write() as session:
        row = session.query(tables.Round).filter_by(submission_id=submission, current=True).one()
        for name, value in values.items():
            setattr(row, name, value)


def change_grade(school: School, submission: str, *moments: str, **values: Any) -> None:
    with school.store.write() as session:
        row = session.query(tables.Grade).filter_by(submission_id=submission).one()
        for name, value in (values | {moment: now(session) for moment in moments}).items():
            setattr(row, name, value)


def class_in_all_states(school: School) -> None:
    """A student for each state a submission may be in."""
    submitted(school, "plain")
    submitted(school, "held", held=True)
    submitted(school, "partial", held=True, **PARTIAL)
    submitted(school, "failed", state=RoundState.FAILED)
    for state in (RoundState.RECEIVED, RoundState.RUNNING):
        submitted(school, state, state=state)
    change_grade(school, submitted(school, "released"), "released_at")
    change_grade(school, submitted(school, "released-held", held=True), "released_at")
    change_grade(school, submitted(school, "reviewed"), "reviewed_at")
    teacher = school.users["teacher"]
    change_grade(school, submitted(school, "withdrawn"), released_by=teacher)
    # superseded: graded and held, then being graded again
    submitted(school, "again", held=False)
    submitted(school, "again", state=RoundState.QUEUED)
    # what counts for nobody: a test by staff, a dry run's sample, one whose round is not written
    submitted(school, "teacher")
    sample, bare = submitted(school, "sampled"), submitted(school, "bare")
    change_round(school, bare, current=False)
    with school.store.write() as session:
        row = session.get_one(tables.Submission, sample)
        row.source, row.number = "sample", 0
        late = session.query(tables.Submission).filter_by(student_id=school.users["plain"]).one()
        assignment = session.get_one(tables.Assignment, school.assignment)
        assignment.due_at = late.created_at - timedelta(days=1)


def counted(school: School) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """The numbers of Home, of the list and of statistics."""
    with school.store.read() as session:
        assignment = session.get_one(tables.Assignment, school.assignment)
        works = staff_home.load_work(session, frozenset({school.course}))
        home = next(vars(one) for one in works if one.assignment_id == school.assignment)
        listed = {
            name: len(review_worklist.list_ids(session, assignment, one)) for name, one in FILTERS.items()
        }
        figures = {**vars(overview(load_submissions(session, school.assignment)))}
    figures["in_progress"] = figures["under_way"]
    return home, listed, {name: figures[name] for name in FILTERS}


@pytest.mark.parametrize(("rule", "expected"), [("latest", LATEST), ("best", BEST)])
def test_home_list_and_statistics_agree(school_url: str, rule: str, expected: dict[str, int]) -> None:
    school = School(school_url)
    class_in_all_states(school)
    with school.store.write() as session:
        session.get_one(tables.Assignment, school.assignment).counts = rule
    home, listed, figures = counted(school)
    assert listed == expected
    assert figures == expected
    shown = {name: home[name] for name in expected if name in home}
    assert shown == {name: count for name, count in expected.items() if name in home}
    assert set(expected) - set(shown) == {"submitted", "reviewed"}
    school.close()
