"""Home page of staff: open work by assignment, counted again only where something changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Integer, and_, cast, func, select
from sqlalchemy.orm import Session

from grading.domain.base_value import Value
from grading.domain.round_states import IN_PROGRESS, RoundState
from grading.store.change_tracking import AssignmentCache
from grading.store.grades import counts
from grading.store.tables import Assignment, Course, Grade, RegradeRequest, Round, Submission
from grading.store.trust import second_opinions

OPEN = (*IN_PROGRESS, RoundState.PARTIAL, RoundState.FAILED)


class AssignmentWork(Value):
    """An assignment with the number of submissions by open work, as `grading.store.grades.counts` has it."""

    assignment_id: int
    course_id: int
    course_title: str
    title: str
    due: datetime | None
    visible: bool
    to_review: int = 0
    """Graded, and neither released nor reviewed."""
    held: int = 0
    """Of those, held for review."""
    requests: int = 0
    """Open regrade requests."""
    opinions: int = 0
    """Released grades from which a second opinion differs, and that nobody has reviewed."""
    partial: int = 0
    failed: int = 0
    in_progress: int = 0

    @property
    def quiet(self) -> bool:
        """Whether there is no open work."""
        waits = (self.to_review, self.requests, self.opinions, self.partial, self.failed, self.in_progress)
        return not any(waits)


@dataclass(frozen=True)
class WorkCounts:
    """Open work of an assignment."""

    to_review: int = 0
    held: int = 0
    requests: int = 0
    opinions: int = 0
    partial: int = 0
    failed: int = 0
    in_progress: int = 0


WorkCountCache = AssignmentCache[WorkCounts]


def load_work(
    session: Session, course_ids: frozenset[int] | None, tallies: WorkCountCache | None = None
) -> list[AssignmentWork]:
    """Open work in these courses (None: all that are not archived), by course and due date."""
    query = _listed()
    if course_ids is not None:
        query = query.where(Course.id.in_(course_ids))
    listed = session.execute(query).all()
    found = (tallies or WorkCountCache()).of(session, {row.id: row.course_id for row in listed}, _counted)
    return [
        AssignmentWork(
            assignment_id=row.id,
            course_id=row.course_id,
            course_title=row.course_title,
            title=row.title,
            due=row.due_at,
            visible=row.visible,
            to_review=found[row.id].to_review,
            held=found[row.id].held,
            requests=found[row.id].requests,
            opinions=found[row.id].opinions,
            partial=found[row.id].partial,
            failed=found[row.id].failed,
            in_progress=found[row.id].in_progress,
        )
        for row in listed
    ]


@cache
def _listed() -> Any:
    columns = (Assignment.id, Assignment.course_id, Assignment.title, Assignment.due_at, Assignment.visible)
    query = select(*columns, Course.title.label("course_title")).join(Course)
    query = query.where(Course.archived.is_(False))
    return query.order_by(Course.title, Course.id, Assignment.due_at.desc(), Assignment.title)


def _counted(session: Session, ids: Collection[int]) -> dict[int, WorkCounts]:
    review, held = _to_review(session, ids)
    states, requests = _states(session, ids), _requests(session, ids)
    opinions = second_opinions.count_by_assignment(session, ids)
    return {
        one: WorkCounts(
            to_review=review[one],
            held=held[one],
            requests=requests[one],
            opinions=opinions[one],
            partial=states[one, RoundState.PARTIAL],
            failed=states[one, RoundState.FAILED],
            in_progress=sum(states[one, state] for state in IN_PROGRESS),
        )
        for one in ids
    }


def _to_review(session: Session, ids: Collection[int]) -> tuple[Counter[int], Counter[int]]:
    query = (
        select(Submission.assignment_id, func.count(), func.sum(cast(Grade.held, Integer)))
        .select_from(Grade)
        .join(Round, and_(Round.id == Grade.round_id, Round.current))
        .join(Submission, Submission.id == Grade.submission_id)
        .join(Assignment, Assignment.id == Submission.assignment_id)
        .where(counts.to_review(), Submission.assignment_id.in_(ids), counts.counts_for_student())
        .group_by(Submission.assignment_id)
    )
    every, held = Counter[int](), Counter[int]()
    for assignment_id, count, some in session.execute(query):
        every[assignment_id], held[assignment_id] = count, int(some or 0)
    return every, held


def _states(session: Session, ids: Collection[int]) -> Counter[tuple[int, str]]:
    query = (
        select(Submission.assignment_id, Round.state, func.count())
        .join(Submission, Submission.id == Round.submission_id)
        .join(Assignment, Assignment.id == Submission.assignment_id)
        .where(Round.current, Round.state.in_(OPEN), Submission.assignment_id.in_(ids))
        .where(counts.counts_for_student())
        .group_by(Submission.assignment_id, Round.state)
    )
    return Counter({(assignment_id, state): n for assignment_id, state, n in session.execute(query)})


def _requests(session: Session, ids: Collection[int]) -> Counter[int]:
    query = (
        select(Submission.assignment_id, func.count())
        .select_from(RegradeRequest)
        .join(Submission, Submission.id == RegradeRequest.submission_id)
        .where(RegradeRequest.state == "open", Submission.assignment_id.in_(ids))
        .group_by(Submission.assignment_id)
    )
    return Counter({assignment_id: n for assignment_id, n in session.execute(query)})  # noqa: C416
