"""Whether somebody may hand in at a moment: course, due date, extension, and how often they did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from grading.domain.errors import GraderError, NotFound
from grading.domain.lateness import Lateness, LateRule, closes, lateness
from grading.domain.value import Value
from grading.store import tables
from grading.store.assignments.settings import due_of
from grading.store.tables.assignments import TRIAL


class Shut(GraderError):
    """Nothing can be handed in for this assignment now."""

    code = "hand_in_refused"
    status = 409


class Archived(Shut):
    """This course is over; nothing can be handed in any more."""

    code = "course_archived"


class DoorClosed(Shut):
    """Nothing more is accepted for this assignment; ask your instructor for an extension."""

    code = "hand_in_closed"


class NoneLeft(Shut):
    """You have used all your hand-ins for this assignment; ask your instructor if you need another."""

    code = "no_hand_ins_left"


class Door(Value):
    """How things stand for a student, or their group, at a moment."""

    due: datetime | None
    """Their own date, with an extension."""
    extended: bool
    rule: LateRule
    closes: datetime | None
    """When nothing is accepted any more; nothing: never."""
    lateness: Lateness
    """Of what would be handed in at that moment."""
    used: int
    """Hand-ins that count for the one of them who has most."""
    most: int | None
    archived: bool

    @property
    def left(self) -> int | None:
        """Hand-ins that are left; nothing: any number."""
        return None if self.most is None else max(0, self.most - self.used)

    @property
    def open(self) -> bool:
        """Whether a student may hand in."""
        return not self.archived and not self.lateness.closed and self.left != 0


def door(
    session: Session, assignment: tables.Assignment, student_id: int, people: Sequence[int], moment: datetime
) -> Door:
    """How things stand for `student_id`, who hands in with `people` (themselves among them)."""
    due = due_of(session, assignment, student_id)
    used = max((count for count, _ in taken(session, assignment.id, people).values()), default=0)
    terms = Terms(assignment.due_at, assignment.late, assignment.max_hand_ins, assignment.course.archived)
    return stands(terms, due, used, moment)


class Terms(NamedTuple):
    """What an assignment says about handing in."""

    due_at: datetime | None
    late: Mapping[str, Any] | None
    most: int | None
    archived: bool


def stands(terms: Terms, due: datetime | None, used: int, moment: datetime) -> Door:
    """How things stand for somebody with this date and so many hand-ins."""
    rule = LateRule.model_validate(terms.late or {})
    return Door(
        due=due,
        extended=due != terms.due_at,
        rule=rule,
        closes=closes(due, rule),
        lateness=lateness(moment, due, rule),
        used=used,
        most=terms.most,
        archived=terms.archived,
    )


def require_current(assignment: tables.Assignment) -> None:
    """Go on, or raise Archived."""
    if assignment.course.archived:
        raise Archived


def require_open(
    session: Session, assignment: tables.Assignment, student_id: int, people: Sequence[int], moment: datetime
) -> None:
    """Go on, or raise Archived, NotFound, DoorClosed or NoneLeft."""
    require_current(assignment)
    found = door(session, assignment, student_id, people, moment)
    if not assignment.visible:
        raise NotFound("There is no such assignment.")
    if found.lateness.closed and found.closes is not None:
        when = f"{found.closes:%d %b %Y, %H:%M} UTC"
        raise DoorClosed(
            f"Nothing is accepted for this assignment after {when}. Ask your instructor for an extension."
        )
    if found.left == 0:
        raise NoneLeft(
            f"All {found.most} hand-ins for this assignment are used. "
            "Ask your instructor if you need another."
        )


def taken(session: Session, assignment_id: int, people: Sequence[int]) -> dict[int, tuple[int, int]]:
    """For each of these people how many hand-ins count for them, and the highest number among them."""
    own, member = tables.Submission, tables.SubmissionMember
    mine = select(own.id, own.student_id.label("user_id"), own.number).where(
        own.assignment_id == assignment_id, own.student_id.in_(people), own.source != TRIAL
    )
    theirs = (
        select(own.id, member.user_id, own.number)
        .join(member, member.submission_id == own.id)
        .where(own.assignment_id == assignment_id, member.user_id.in_(people))
    )
    found = dict.fromkeys(people, (0, 0))
    for row in session.execute(mine.union(theirs)):
        count, highest = found[row.user_id]
        found[row.user_id] = count + 1, max(highest, row.number)
    return found


def counting_for(user_id: Any, assignment_id: int | None = None) -> ColumnElement[bool]:
    """A condition on submissions: those that count for this user, alone or in a group.

    Where the query is about one assignment, saying which lets an index find the few that there are.
    """
    own, member = tables.Submission, tables.SubmissionMember
    mine = select(own.id).where(own.student_id == user_id)
    if assignment_id is not None:
        mine = mine.where(own.assignment_id == assignment_id)
    return own.id.in_(mine.union_all(select(member.submission_id).where(member.user_id == user_id)))
