"""Stamps of courses and assignments: another one after every change, and only then."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from grading.domain.permissions import Actor
from grading.scoring.curves import Curve
from grading.store import change_tracking, tables
from grading.store.grades import release
from grading.store.review import curves
from tests.integration.grades.classroom import a_report, change, mark
from tests.integration.webapp import School


def stamps(
    school: School,
) -> tuple[change_tracking.Stamp, change_tracking.Stamp, change_tracking.Stamp, change_tracking.Stamp]:
    """Of an assignment, its course, another assignment of the course, and another course."""
    with school.store.read() as session:
        other = session.get_one(tables.Assignment, school.elsewhere).course_id
        return (
            change_tracking.stamp(session, school.course, school.assignment),
            change_tracking.stamp(session, school.course),
            change_tracking.stamp(session, school.course, 10_000),
            change_tracking.stamp(session, other, school.elsewhere),
        )


def graded(school: School, name: str) -> str:
    submission = school.submit(name)
    school.grade(submission, a_report(4, 2))
    return submission


def test_each_change_of_an_assignment_has_a_stamp_of_its_own(school_url: str) -> None:
    school = School(school_url)
    submission = graded(school, "anna")
    teacher = Actor(user_id=school.users["teacher"], roles={school.course: "instructor"})

    def writing(what: Callable[[Session], object]) -> Callable[[], None]:
        def run() -> None:
            with school.store.write() as session:
                what(session)

        return run

    def curve(session: Session) -> None:
        assignment = session.get_one(tables.Assignment, school.assignment)
        wanted = Curve.model_validate({"kind": "add", "points": 1.0})
        seen = curves.preview_curve(session, assignment, wanted).seen
        assert curves.apply_curve(session, assignment, wanted, teacher, seen=seen, reason="why")[1] == 1

    steps: list[Callable[[], object]] = [
        lambda: school.submit("ben"),
        lambda: change(school, submission, "think", 6),
        lambda: mark(school, submission, "load", 3),
        writing(lambda s: release.release_all(s, school.assignment, teacher)),
        writing(curve),
        writing(lambda s: setattr(s.get_one(tables.Assignment, school.assignment), "counts", "best")),
        writing(lambda s: s.execute(update(tables.Grade).values(held=True))),
        writing(lambda s: s.delete(s.scalars(select(tables.Mark)).one())),
    ]
    for number, step in enumerate(steps):
        before = stamps(school)
        step()
        after = stamps(school)
        assert after[0] != before[0], number
        assert after[1] != before[1], number
        many = number == 6  # nobody knows which rows a statement on many finds
        assert (after[2:] == before[2:]) != many, number
        assert stamps(school) == after
    school.close()


def test_what_nobody_sees_touches_nothing(school_url: str) -> None:
    school = School(school_url)
    graded(school, "anna")
    before = stamps(school)
    with school.store.write() as session:
        session.get_one(tables.Course, school.course).served_batch = 7
        session.get_one(tables.User, school.users["anna"]).mail_when_ready = True
        session.scalars(select(tables.Round)).one().queue_turn = 9
    assert stamps(school) == before
    school.close()


def test_who_commits_late_is_seen(school_url: str) -> None:
    """A transaction that began first and ends last changes a stamp that was read in between."""
    school = School(school_url)
    submission = graded(school, "anna")
    if school.store.engine.dialect.name == "sqlite":
        school.close()
        return  # one writer at a time: there is nothing in between
    with school.store.write() as slow:
        slow.scalars(select(tables.Grade)).one().held = True
        slow.flush()
        mark(school, submission, "load", 3)
        between = stamps(school)
    assert stamps(school)[0] != between[0]
    school.close()


def test_a_savepoint_that_is_taken_back_takes_no_touch_along(school_url: str) -> None:
    school = School(school_url)
    graded(school, "anna")
    before = stamps(school)
    with school.store.write() as session:
        session.scalars(select(tables.Grade)).one().held = True
        with pytest.raises(LookupError), session.begin_nested():
            with session.begin_nested():
                session.scalars(select(tables.Round)).one().state = "failed"
            raise LookupError
    assert stamps(school)[0] != before[0]
    school.close()


def test_many_marks_become_one_that_never_was(school_url: str) -> None:
    school = School(school_url)
    seen = {stamps(school)[0]}
    for number in range(change_tracking.MERGE_FROM + 2):
        with school.store.write() as session:
            session.get_one(tables.Assignment, school.assignment).title = f"Homework {number}"
        seen.add(stamps(school)[0])
    with school.store.write() as session:
        assert change_tracking.merge_markers(session) >= 1
        assert change_tracking.merge_markers(session) == 0
        here = tables.ChangeMarker.assignment_id == school.assignment
        assert session.scalar(select(func.count()).select_from(tables.ChangeMarker).where(here)) == 1
    assert stamps(school)[0] not in seen
    school.close()
