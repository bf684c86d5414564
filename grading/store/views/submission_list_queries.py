"""What `lists` asks of the database: which hand-ins, and all that a line needs of them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, Subquery, Text, and_, cast, select

from grading.store import tables


def counting(user_id: Any, assignment_id: Any = None) -> Subquery:
    """The hand-ins that count for a user, alone or in a group; by indexes that hold all of these columns."""
    own, member = tables.Submission, tables.SubmissionMember
    columns = select(own.id, own.assignment_id, own.number, own.created_at)
    mine = columns.where(own.student_id == user_id, own.number > 0)  # what is lower is a trial
    others = columns.join(member, member.submission_id == own.id)
    others = others.where(member.user_id == user_id, own.student_id != user_id)
    if assignment_id is not None:
        mine = mine.where(own.assignment_id == assignment_id)
        others = others.where(own.assignment_id == assignment_id)
    return mine.union_all(others).subquery()


_COLUMNS = (
    tables.Submission.id,
    tables.Submission.number,
    tables.Submission.student_id,
    tables.Submission.created_at,
    tables.Assignment.course_id,
    tables.Assignment.id.label("assignment_id"),
    tables.Assignment.slug,
    tables.Assignment.title,
    tables.Assignment.due_at,
    cast(tables.Assignment.late, Text).label("late"),  # the same of many lines: it is read once
    tables.Course.slug.label("course"),
    tables.User.name.label("student"),
    tables.Round.state,
    tables.Grade.final_points,
    tables.Grade.points_so_far,
    tables.Grade.max_points,
    tables.Grade.held,
    tables.Grade.released_at,
    tables.Grade.flag_text,
    tables.Extension.due_at.label("own"),
    tables.SubmissionMember.user_id.label("member"),
)
OF_A_LINE = len(_COLUMNS) - 1
"""Columns before `member`."""


def lines_of(some: Subquery | None = None) -> Select[Any]:
    """All that a line needs, without reports and other large things; one row for each member of a group.

    `some` are the hand-ins wanted; they come first, as planners do not look through so many tables.
    """
    own = tables.Extension
    theirs = and_(
        own.assignment_id == tables.Submission.assignment_id, own.student_id == tables.Submission.student_id
    )
    query: Any = select(*_COLUMNS)
    if some is None:
        query = query.select_from(tables.Submission)
    else:
        query = query.select_from(some).join(tables.Submission, tables.Submission.id == some.c.id)
    found: Select[Any] = (
        query.join(
            tables.Round, and_(tables.Round.submission_id == tables.Submission.id, tables.Round.current)
        )
        .join(tables.Assignment, tables.Assignment.id == tables.Submission.assignment_id)
        .join(tables.Course, tables.Course.id == tables.Assignment.course_id)
        .join(tables.User, tables.User.id == tables.Submission.student_id)
        .outerjoin(tables.Grade, tables.Grade.round_id == tables.Round.id)
        .outerjoin(own, theirs)
        .outerjoin(tables.SubmissionMember, tables.SubmissionMember.submission_id == tables.Submission.id)
    )
    return found
