"""Lists of the API with keyset pagination, which costs the same on every page.

Each function takes the key after which its page begins, and the number of rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import CTE, CompoundSelect, Select, and_, func, or_, select, tuple_, union_all
from sqlalchemy.orm import Session, joinedload

from grading.domain.base_value import Value
from grading.domain.round_states import IN_PROGRESS, RoundState
from grading.store import tables
from grading.store.courses import roster
from grading.store.courses.courses import CourseEntry, load_course
from grading.store.courses.roster import Person
from grading.store.grades import gradebook_cells
from grading.store.submissions.intake import counts_for
from grading.store.views import gradebook, newest_submissions, submission_lists
from grading.store.views.submission_lists import SubmissionLine


def list_courses(
    session: Session, ids: frozenset[int] | None, archived: bool | None, after: int, limit: int
) -> tuple[CourseEntry, ...]:
    """These courses (None: all) by id."""
    course = tables.Course
    count = select(func.count()).where(tables.Assignment.course_id == course.id).scalar_subquery()
    query = select(course, count).where(course.id > after).order_by(course.id).limit(limit)
    if ids is not None:
        query = query.where(course.id.in_(ids))
    if archived is not None:
        query = query.where(course.archived == archived)
    rows = session.execute(query)
    return tuple(CourseEntry(one.id, one.slug, one.title, one.archived, many) for one, many in rows)


def list_members(
    session: Session, course_id: int, role: str | None, search: str, after: int, limit: int
) -> tuple[Person, ...]:
    """The members of a course by id; `search` finds names, addresses and ids."""
    here = tables.Membership
    query = (
        select(*roster.PERSON_COLUMNS, here.role)
        .select_from(tables.User)
        .join(here, here.user_id == tables.User.id)
        .where(here.course_id == course_id, tables.User.id > after)
        .order_by(tables.User.id)
        .limit(limit)
    )
    if role:
        query = query.where(here.role == role)
    return roster.find_people(session, query, search)


def list_assignments(
    session: Session,
    course_ids: frozenset[int] | None,
    staff_of: frozenset[int] | None,
    after: int,
    limit: int,
) -> Sequence[tables.Assignment]:
    """The assignments of these courses (None: all); outside of `staff_of` only visible ones."""
    own = tables.Assignment
    query = select(own).where(own.id > after).order_by(own.id).limit(limit)
    if course_ids is not None:
        query = query.where(own.course_id.in_(course_ids))
    if staff_of is not None:
        query = query.where(own.visible | own.course_id.in_(staff_of))
    return session.scalars(query.options(joinedload(own.course, innerjoin=True))).all()


class SubmissionFilters(Value):
    """Filters of submissions; None: all."""

    staff_of: frozenset[int] | None = None
    """Courses whose submissions are all included; of others only those that count for `reader`."""
    reader: int = 0
    course_id: int | None = None
    assignment_id: int | None = None
    student_id: int | None = None
    state: str | None = None
    flagged: bool | None = None
    released: bool | None = None
    since: datetime | None = None
    until: datetime | None = None
    ids: tuple[str, ...] = ()
    """Only these; empty: all."""
    oldest_first: bool = False


LOOKED_AT = (1, 10, None)
"""So many times as many submissions as are asked for are chosen from (None: all of them), until enough of
them match."""


def list_submissions(
    session: Session, wanted: SubmissionFilters, after: tuple[datetime, str] | None, limit: int
) -> tuple[SubmissionLine, ...]:
    """Submissions in order of time; first their ids by indexes alone, then the columns of those few."""
    own = tables.Submission
    order = _order(own, oldest_first=wanted.oldest_first)
    lateral = newest_submissions.is_lateral(session)
    found: list[str] = []
    # of what few rounds are, their state's index finds all
    few_match = wanted.state not in (None, RoundState.GRADED)
    looks = (None,) if few_match or not lateral else LOOKED_AT
    for times in looks:
        most = None if times is None else times * limit
        some = _candidates(wanted, after, most, lateral=times is not None)
        query = _ids(wanted, some, counted=most is not None).where(own.number > 0, *_which(wanted))
        if some is None:
            query = query.where(*_whose(wanted), *_within(own, wanted, after))
        if most is None and looks is LOOKED_AT and wanted.released is False:
            query = query.where(own.id.in_(_not_released()))
        rows = session.execute(query.order_by(*order).limit(limit)).all()
        found = [row.id for row in rows]
        if most is None or some is None or len(rows) == limit or (rows and rows[0].chosen_from < most):
            break
    return submission_lists.load_lines(session, found)


def _order(of: Any, *, oldest_first: bool) -> tuple[Any, Any]:
    return (of.created_at, of.id) if oldest_first else (of.created_at.desc(), of.id.desc())


def _ids(wanted: SubmissionFilters, some: CTE | None, *, counted: bool) -> Select[Any]:
    """The ids of these (None: all), and how many they are, joined with what the filters ask for."""
    own, round_, grade = tables.Submission, tables.Round, tables.Grade
    query: Select[Any] = select(own.id)
    if some is not None:
        query = query.join(some, some.c.id == own.id)
        if counted:
            number = select(func.count()).select_from(some).scalar_subquery()
            query = query.add_columns(number.label("chosen_from"))
    of_grade = wanted.flagged is not None or wanted.released is not None
    if of_grade or wanted.state is not None:
        query = query.join(round_, and_(round_.submission_id == own.id, round_.current))
    return query.outerjoin(grade, grade.round_id == round_.id) if of_grade else query


def _within(of: Any, wanted: SubmissionFilters, after: tuple[datetime, str] | None) -> list[Any]:
    """Conditions on the place in the order."""
    found = [] if wanted.since is None else [of.created_at >= wanted.since]
    if wanted.until is not None:
        found.append(of.created_at < wanted.until)
    if after is not None:
        place = tuple_(of.created_at, of.id)
        found.append(place > after if wanted.oldest_first else place < after)
    return found


def _candidates(
    wanted: SubmissionFilters, after: tuple[datetime, str] | None, most: int | None, *, lateral: bool
) -> CTE | None:
    """What is chosen from, where that is neither all nor what the other filters find by themselves.

    The first so many (None: all) in this order of what the courses hold, samples too, and of what counts for
    the reader elsewhere: were more of the one than of the other among them, a page would end beyond what it
    left out.
    """
    if wanted.ids or wanted.student_id is not None or wanted.assignment_id is not None:
        return None
    own, staff, course = tables.Submission, wanted.staff_of, wanted.course_id
    courses, parts, oldest_first = staff, list[Any](), wanted.oldest_first
    if staff is None and course is None:
        if most is None:
            return None
        parts.append(select(own.id, own.created_at).where(*_within(own, wanted, after)))
    if course is not None:
        courses = frozenset({course} if staff is None or course in staff else ())
    if courses:
        order = _order(own, oldest_first=oldest_first)
        here = newest_submissions.of_courses(
            courses, order, most, *_within(own, wanted, after), lateral=lateral, oldest_first=oldest_first
        )
        parts.append(here.subquery().select())
    if staff is not None and course not in staff:
        theirs = submission_lists.counting_query(wanted.reader)
        elsewhere = select(theirs.c.id, theirs.c.created_at).where(*_within(theirs.c, wanted, after))
        elsewhere = elsewhere.where(theirs.c.assignment_id.not_in(_of_courses(staff)))
        if course is not None:
            elsewhere = elsewhere.where(theirs.c.assignment_id.in_(_of_courses({course})))
        parts.append(elsewhere)
    both = union_all(*parts).subquery()
    chosen = select(both.c.id, both.c.created_at)
    if most is not None:
        chosen = chosen.order_by(*_order(both.c, oldest_first=oldest_first)).limit(most)
    return chosen.cte()


def _not_released() -> CompoundSelect[Any]:
    """Submissions with a grade that is not released, or with a round that has none: few, by their indexes."""
    grade, round_ = tables.Grade, tables.Round
    hidden = select(grade.submission_id).where(grade.released_at.is_(None))
    none = select(round_.submission_id).where(
        round_.current, round_.state.in_((*IN_PROGRESS, RoundState.FAILED))
    )
    return hidden.union_all(none)


def _of_courses(ids: Collection[int]) -> Select[Any]:
    return select(tables.Assignment.id).where(tables.Assignment.course_id.in_(ids))


def _whose(wanted: SubmissionFilters) -> list[Any]:
    """Conditions where few are chosen from: ids, or those of a student or an assignment."""
    own, found = tables.Submission, []
    if wanted.staff_of is not None:
        theirs = own.assignment_id.in_(_of_courses(wanted.staff_of))
        found.append(or_(theirs, counts_for(wanted.reader)))
    if wanted.course_id is not None:
        found.append(own.assignment_id.in_(_of_courses({wanted.course_id})))
    if wanted.assignment_id is not None:
        found.append(own.assignment_id == wanted.assignment_id)
    if wanted.student_id is not None:
        found.append(counts_for(wanted.student_id))
    return found


def _which(wanted: SubmissionFilters) -> list[Any]:
    own, round_, grade = tables.Submission, tables.Round, tables.Grade
    found: list[Any] = []
    if wanted.state is not None:
        found.append(round_.state == wanted.state)
    if wanted.released is not None:
        shown = grade.released_at.is_not(None)
        found.append(shown if wanted.released else grade.released_at.is_(None))
    if wanted.flagged is not None:
        flagged = func.coalesce(grade.flag_text, "") != ""
        if wanted.staff_of is not None:  # a filter must not tell what the lines do not
            staff = own.assignment_id.in_(_of_courses(wanted.staff_of))
            flagged = and_(flagged, or_(grade.released_at.is_not(None), staff))
        found.append(flagged if wanted.flagged else ~flagged)
    if wanted.ids:
        found.append(own.id.in_(wanted.ids))
    return found


def list_grades(
    session: Session, assignment: tables.Assignment, after: int, limit: int
) -> tuple[gradebook.Row, ...]:
    """The counting grades of one assignment by student id; each row has one cell."""
    course = load_course(session, assignment.course_id)
    listed = gradebook_cells.load_columns(session, course.id, assignment_id=assignment.id)
    return gradebook.load_rows(
        session, course, listed, gradebook.students_after(session, course.id, after, limit)
    )
