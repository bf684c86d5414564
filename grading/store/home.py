"""What somebody sees first: a student's assignments, and what waits for staff. A fixed number of queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import Integer, and_, cast, func, select
from sqlalchemy.orm import Session

from grading.late import Lateness, LateRule, closes, lateness, own_due
from grading.model import RoundState
from grading.rubric import Value
from grading.store.database import now
from grading.store.door import counting_for
from grading.store.tables import (
    Assignment,
    Course,
    Extension,
    Grade,
    GroupMember,
    RegradeRequest,
    Round,
    Submission,
    Upload,
)

NOT_GRADED = (RoundState.FAILED.value, RoundState.PARTIAL.value)
IN_GRADING = (RoundState.RECEIVED.value, RoundState.QUEUED.value, RoundState.RUNNING.value)


class Newest(Value):
    """The newest hand-in of a card."""

    id: str
    number: int
    state: str
    created_at: datetime
    lateness: Lateness
    released: bool
    points: float | None = None
    """Nothing before the release."""
    points_so_far: float | None = None
    max_points: float | None = None


class Card(Value):
    """An assignment as its student sees it."""

    assignment_id: int
    course_id: int
    course_title: str
    title: str
    due: datetime | None
    extended: bool
    closes: datetime | None
    lateness: Lateness
    """Of what is handed in now."""
    hand_ins: int
    most: int | None
    newest: Newest | None
    uploaded_at: datetime | None
    """Something was uploaded then and is not handed in."""
    invited: bool
    """A classmate asks them into a group."""

    @property
    def open(self) -> bool:
        """Whether something can be handed in now."""
        return not self.lateness.closed and (self.most is None or self.hand_ins < self.most)


def cards(session: Session, user_id: int, course_ids: Iterable[int]) -> list[Card]:
    """The assignments that a student of these courses sees: those still to be done first, by due date."""
    moment = now(session)
    mine = _hand_ins(session, user_id)
    uploads = {
        row.assignment_id: row.created_at
        for row in session.execute(
            select(Upload.assignment_id, Upload.created_at).where(Upload.user_id == user_id)
        )
    }
    asked = select(GroupMember.assignment_id).where(
        GroupMember.user_id == user_id, GroupMember.confirmed.is_(False)
    )
    invited = set(session.scalars(asked))
    own = and_(Extension.assignment_id == Assignment.id, Extension.student_id == user_id)
    query = (
        select(Assignment, Course.title.label("course_title"), Extension.due_at.label("own"))
        .join(Course, Course.id == Assignment.course_id)
        .outerjoin(Extension, own)
        .where(Assignment.course_id.in_(list(course_ids)), Assignment.visible, Course.archived.is_(False))
    )
    found = []
    rows: Any = session.execute(query)
    for assignment, course_title, own_date in rows:
        rule = LateRule.model_validate(assignment.late or {})
        due = own_due(assignment.due_at, own_date)
        hand_ins = mine.get(assignment.id, [])
        card = Card(
            assignment_id=assignment.id,
            course_id=assignment.course_id,
            course_title=course_title,
            title=assignment.title,
            due=due,
            extended=own_date is not None,
            closes=closes(due, rule),
            lateness=lateness(moment, due, rule),
            hand_ins=len(hand_ins),
            most=assignment.max_hand_ins,
            newest=_newest(hand_ins, assignment.due_at, rule) if hand_ins else None,
            uploaded_at=uploads.get(assignment.id),
            invited=assignment.id in invited,
        )
        found.append(card)
    return sorted(found, key=lambda card: _order(card, moment))


def _order(card: Card, moment: datetime) -> tuple[int, float, str]:
    """What is due next first, then what has no date, then what is over, the latest first."""
    if card.due is None:
        return 1, 0.0, card.title.casefold()
    distance = (card.due - moment).total_seconds()
    return (0 if distance >= 0 else 2), abs(distance), card.title.casefold()


def _hand_ins(session: Session, user_id: int) -> dict[int, list[Any]]:
    """Hand-ins that count for somebody, by assignment, the first one first; columns only."""
    query = (
        select(
            Submission.id,
            Submission.assignment_id,
            Submission.number,
            Submission.created_at,
            Round.state,
            Grade.released_at,
            Grade.final_points,
            Grade.points_so_far,
            Grade.max_points,
            Extension.due_at.label("own"),
        )
        .join(Round, and_(Round.submission_id == Submission.id, Round.current))
        .outerjoin(Grade, Grade.round_id == Round.id)
        .outerjoin(
            Extension,
            and_(
                Extension.assignment_id == Submission.assignment_id,
                Extension.student_id == Submission.student_id,
            ),
        )
        .where(counting_for(user_id))
        .order_by(Submission.number, Submission.created_at)
    )
    found: dict[int, list[Any]] = {}
    for row in session.execute(query):
        found.setdefault(row.assignment_id, []).append(row)
    return found


def _newest(hand_ins: list[Any], all_due: datetime | None, rule: LateRule) -> Newest:
    row = hand_ins[-1]
    released = row.released_at is not None
    return Newest(
        id=row.id,
        number=row.number,
        state=row.state,
        created_at=row.created_at,
        lateness=lateness(row.created_at, own_due(all_due, row.own), rule),
        released=released,
        points=row.final_points if released else None,
        points_so_far=row.points_so_far if released else None,
        max_points=row.max_points if released else None,
    )


class Waits(Value):
    """An assignment as its staff see it: how many hand-ins wait for what."""

    assignment_id: int
    course_id: int
    course_title: str
    title: str
    due: datetime | None
    visible: bool
    to_review: int = 0
    """Graded, and neither released nor looked at."""
    held: int = 0
    """Of those, with a flag that keeps them from being released."""
    requests: int = 0
    """Open requests for a regrade."""
    not_graded: int = 0
    in_grading: int = 0

    @property
    def quiet(self) -> bool:
        """Whether nothing waits."""
        return not (self.to_review or self.requests or self.not_graded or self.in_grading)


def waiting(session: Session, course_ids: frozenset[int] | None) -> list[Waits]:
    """What waits in these courses (nothing: all that are not archived), by course and due date."""
    query = select(Assignment, Course.title.label("course_title")).join(Course)
    query = query.where(Course.archived.is_(False))
    if course_ids is not None:
        query = query.where(Course.id.in_(course_ids))
    order = query.order_by(Course.title, Course.id, Assignment.due_at.desc(), Assignment.title)
    listed = session.execute(order).all()
    review, held = _to_review(session)
    states, requests = _states(session), _requests(session)
    return [
        Waits(
            assignment_id=assignment.id,
            course_id=assignment.course_id,
            course_title=course_title,
            title=assignment.title,
            due=assignment.due_at,
            visible=assignment.visible,
            to_review=review[assignment.id],
            held=held[assignment.id],
            requests=requests[assignment.id],
            not_graded=sum(states[assignment.id, state] for state in NOT_GRADED),
            in_grading=sum(states[assignment.id, state] for state in IN_GRADING),
        )
        for assignment, course_title in listed
    ]


def _to_review(session: Session) -> tuple[Counter[int], Counter[int]]:
    query = (
        select(Submission.assignment_id, func.count(), func.sum(cast(Grade.held, Integer)))
        .select_from(Grade)
        .join(Round, and_(Round.id == Grade.round_id, Round.current))
        .join(Submission, Submission.id == Round.submission_id)
        .where(Grade.released_at.is_(None), Grade.reviewed_at.is_(None))
        .group_by(Submission.assignment_id)
    )
    every, held = Counter[int](), Counter[int]()
    for assignment_id, count, some in session.execute(query):
        every[assignment_id], held[assignment_id] = count, int(some or 0)
    return every, held


def _states(session: Session) -> Counter[tuple[int, str]]:
    query = (
        select(Submission.assignment_id, Round.state, func.count())
        .join(Submission, Submission.id == Round.submission_id)
        .where(Round.current, Round.state.in_((*NOT_GRADED, *IN_GRADING)))
        .group_by(Submission.assignment_id, Round.state)
    )
    return Counter({(assignment_id, state): n for assignment_id, state, n in session.execute(query)})


def _requests(session: Session) -> Counter[int]:
    query = (
        select(Submission.assignment_id, func.count())
        .select_from(RegradeRequest)
        .join(Submission, Submission.id == RegradeRequest.submission_id)
        .where(RegradeRequest.state == "open")
        .group_by(Submission.assignment_id)
    )
    return Counter({assignment_id: n for assignment_id, n in session.execute(query)})  # noqa: C416
