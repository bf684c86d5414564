"""Who waits before whom: one look at the whole line, for all pages that ask within a second.

The order is that of `grading.store.rounds.queue`: interactive before batch, courses in turns, in each course
everyone's first before anyone's second. What is still being prepared stands where it will join.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy import ColumnElement, bindparam, func, literal_column, select
from sqlalchemy.orm import Session

from grading.domain.model import PRIORITIES, RoundState, RunState
from grading.store.database import now
from grading.store.tables import Course, Outbox, Round, Run

MOST = 20_000
"""Rounds that are looked at, and so the last place that is told."""
_QUEUED: ColumnElement[str] = literal_column("'queued'")
_LINES = (
    select(Round.id, Round.course_id, Round.student_id, Round.line)
    .where(Round.state == _QUEUED, Round.priority == bindparam("priority"))
    .order_by(Round.course_id, Round.line, Round.created_at, Round.id)
    .limit(MOST)
)
_RECEIVED = (
    select(Round.id, Round.course_id, Round.student_id)
    .where(Round.state == RoundState.RECEIVED.value, Round.priority == bindparam("priority"))
    .order_by(Round.created_at, Round.id)
    .limit(MOST)
)
_TO_RUN = (
    select(Round.id)
    .join(Outbox, Outbox.key == Round.id)
    .where(Outbox.kind == "trial", Outbox.done_at.is_(None), Round.state == RoundState.RECEIVED.value)
    .order_by(Round.priority.desc(), Round.created_at, Round.id)
    .limit(MOST)
)
_SENT = (
    select(Run.id, Run.round_id, Run.stage, Round.priority)
    .join(Round, Round.id == Run.round_id)
    .where(Run.state == RunState.DISPATCHED)
    .order_by(Run.dispatched_at, Run.id)
    .limit(MOST)
)


@dataclass(frozen=True)
class Sent:
    """A run that was sent to machines and has not come back."""

    run: str
    round_id: str
    stage: str
    priority: str


@dataclass(frozen=True)
class Places:
    """The line as it was. A round that is not in it came later, or does not wait."""

    before: Mapping[str, int] = field(default_factory=dict)
    """round -> rounds of its own priority that go before it."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """priority -> rounds that wait."""

    def ahead(self, round_id: str, priority: str) -> int:
        """Rounds of its own priority that go before it."""
        return self.before.get(round_id, self.waiting.get(priority, 0))

    def position(self, round_id: str, priority: str) -> int:
        """Its place, from 1: interactive rounds go before batch ones."""
        first = self.waiting.get("interactive", 0) if priority == "batch" else 0
        return first + self.ahead(round_id, priority) + 1


def places(session: Session) -> Places:
    """The whole line."""
    before: dict[str, int] = {}
    waiting = {}
    for priority in PRIORITIES:
        order = _order(session, priority)
        before |= {round_id: place for place, round_id in enumerate(order)}
        waiting[priority] = len(order)
    return Places(before, waiting)


def to_run(session: Session) -> dict[str, int]:
    """The place of each round whose work waits or is run now, from 1; interactive ones first."""
    return {round_id: place for place, round_id in enumerate(session.scalars(_TO_RUN), 1)}


def _order(session: Session, priority: str) -> list[str]:
    lines: dict[int, list[tuple[int, str]]] = defaultdict(list)
    """course -> (line, round), in order"""
    last: dict[tuple[int, int], int] = {}
    """(course, student) -> line of the last one"""
    for row in session.execute(_LINES, {"priority": priority}):
        lines[row.course_id].append((row.line, row.id))
        last[row.course_id, row.student_id] = row.line
    for new in session.execute(_RECEIVED, {"priority": priority}):
        here, key = lines[new.course_id], (new.course_id, new.student_id)
        line = last[key] + 1 if key in last else here[0][0] if here else 0
        here.insert(bisect_right(here, line, key=lambda one: one[0]), (line, new.id))
        last[key] = line
    return list(_in_turns(lines, _turns(session, priority, len(lines))))


def _turns(session: Session, priority: str, courses: int) -> list[int]:
    """Courses, those that were served longest ago first."""
    if courses < 2:
        return []
    served = Course.served_interactive if priority == "interactive" else Course.served_batch
    return list(session.scalars(select(Course.id).order_by(served, Course.id)))


def _in_turns(lines: Mapping[int, list[tuple[int, str]]], turns: list[int]) -> Iterator[str]:
    courses = [lines[course] for course in turns if course in lines] or list(lines.values())
    number = 0
    while courses := [line for line in courses if number < len(line)]:
        yield from (line[number][1] for line in courses)
        number += 1


def sent(session: Session) -> list[Sent]:
    """What was sent and has not come back, in the order in which it was sent."""
    return [Sent(row.id, row.round_id, row.stage, row.priority) for row in session.execute(_SENT)]


def newcomers(session: Session, within_s: float) -> dict[str, int]:
    """priority -> rounds that were made in the last seconds."""
    since = now(session) - timedelta(seconds=within_s)
    states = [state.value for state in RoundState]
    query = select(Round.priority, func.count()).where(
        Round.state.in_(states), Round.priority.in_(PRIORITIES), Round.created_at > since
    )
    return {row[0]: row[1] for row in session.execute(query.group_by(Round.priority))}
