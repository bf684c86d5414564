"""The queue in SQL: rounds to prepare, stages to dispatch or to retry, rounds to combine.

Queued rounds are served round-robin: courses take turns, the one served longest ago first, and so do the
students of a course. The `queue_turn` of a round, within its course and priority, says in which turn it is
served: a student's first queued round gets the turn that is served now, each further one the turn after the
one before. An index holds that order, so finding the next rounds costs the same however many are queued.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice, zip_longest
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, bindparam, func, literal_column, select
from sqlalchemy.orm import Session, aliased

from grading.domain.round_states import PRIORITIES, RoundState, RunState, StageState
from grading.store.database import cache_now, clock_column, now
from grading.store.tables import Base, Course, Outbox, Round, RoundStage, Run, UtcDateTime

_COURSES: Table = Base.metadata.tables["courses"]
_SERVED = {"interactive": _COURSES.c.served_interactive, "batch": _COURSES.c.served_batch}
# as the partial indexes have it: PostgreSQL does not look into what is bound later
_QUEUED: ColumnElement[str] = literal_column("'queued'")


@dataclass(frozen=True)
class NextRound:
    """A queued round that is served next."""

    round_id: str
    course_id: int
    priority: str


@dataclass(frozen=True)
class PendingWork:
    """Whether there may be work to dispatch."""

    due: bool
    """The next try of some stage is due."""
    queued: frozenset[str]
    """Priorities with a queued round."""


@dataclass(frozen=True)
class DueRetry:
    """A stage whose next try is due."""

    round_id: str
    stage: str
    priority: str


# --- statements, made once: putting one together costs more than running it ---------------------------------


def _next_turn() -> ColumnElement[int]:
    """The turn after the student's last one, else the turn that is served now, else 0."""
    same = aliased(Round)
    there = (same.state == _QUEUED, same.priority == Round.priority, same.course_id == Round.course_id)
    own = select(func.max(same.queue_turn) + 1).where(*there, same.student_id == Round.student_id)
    turn = select(func.min(same.queue_turn)).where(*there)
    return func.coalesce(own.correlate(Round).scalar_subquery(), turn.correlate(Round).scalar_subquery(), 0)


NEXT_TURN = _next_turn()
"""The `queue_turn` of a round that becomes queued, as an expression."""


def _courses_that_wait(priority: str) -> Select[Any]:
    """Courses with queued rounds, those served longest ago first; one index lookup for each course."""
    queued = (Round.state == _QUEUED, Round.priority == bindparam("priority"))
    found = select(func.min(Round.course_id).label("id")).where(*queued).cte("found", recursive=True)
    after = select(func.min(Round.course_id)).where(*queued, Round.course_id > found.c.id)
    found = found.union_all(select(after.correlate(found).scalar_subquery()).where(found.c.id.is_not(None)))
    served = _SERVED[priority]
    return (
        select(_COURSES.c.id)
        .join(found, found.c.id == _COURSES.c.id)
        .order_by(served, _COURSES.c.id)
        .limit(bindparam("most"))
    )


_COURSES_THAT_WAIT = {priority: _courses_that_wait(priority) for priority in PRIORITIES}
_NEXT_OF_COURSE = (
    select(Round.id)
    .where(
        Round.state == _QUEUED,
        Round.priority == bindparam("priority"),
        Round.course_id == bindparam("course"),
    )
    .order_by(Round.queue_turn, Round.created_at, Round.id)
    .limit(bindparam("most"))
)
_LAST_SERVED = {priority: select(func.coalesce(func.max(served), 0)) for priority, served in _SERVED.items()}
_SERVE = {
    priority: _COURSES.update()
    .where(_COURSES.c.id == bindparam("at_course"))
    .values({served: bindparam("place")})
    for priority, served in _SERVED.items()
}
_SERVE_ONE = {
    priority: _COURSES.update()
    .where(_COURSES.c.id == bindparam("at_course"))
    .values({served: _LAST_SERVED[priority].scalar_subquery() + bindparam("place")})
    for priority, served in _SERVED.items()
}
_DUE_AGAIN = (
    select(RoundStage.round_id)
    .join(Round, Round.id == RoundStage.round_id)
    .where(
        RoundStage.state == StageState.FAILED,
        RoundStage.stage == bindparam("stage"),
        RoundStage.priority == bindparam("priority"),
        Round.state == RoundState.RUNNING,
        RoundStage.not_before <= bindparam("moment", type_=UtcDateTime()),
    )
    .order_by(RoundStage.not_before)
    .limit(bindparam("most"))
)


_FIRST_DUE = select(func.min(RoundStage.not_before)).where(RoundStage.state == StageState.FAILED)
_ANY_QUEUED = {
    priority: select(Round.id)
    # each by its own index: PostgreSQL does not look into what is bound later
    .where(Round.state == _QUEUED, Round.priority == literal_column(f"'{priority}'"))
    .exists()
    .label(priority)
    for priority in PRIORITIES
}
_WHAT_WAITS = {
    dialect: select(clock_column(dialect), _FIRST_DUE.scalar_subquery().label("due"), *_ANY_QUEUED.values())
    for dialect in ("sqlite", "postgresql")
}


def _by_stage(rows: Select[Any]) -> Select[Any]:
    some = rows.limit(bindparam("most")).subquery()
    return select(some.c.stage, func.count()).group_by(some.c.stage)


_SOME_QUEUED = (
    select(Round.id)
    .where(Round.state == _QUEUED, Round.priority == bindparam("priority"))
    .limit(bindparam("most"))
).subquery()
_WAITING_STAGES = (
    select(RoundStage.stage, func.count())
    .join(_SOME_QUEUED, _SOME_QUEUED.c.id == RoundStage.round_id)
    # by the round: where PostgreSQL last counted in a quiet hour, it takes all that wait for a few, and looks
    # through them for each round
    .where(func.coalesce(RoundStage.state, "") == StageState.WAITING)
    .group_by(RoundStage.stage)
)
_FAILED_STAGES = _by_stage(
    select(RoundStage.stage).where(
        RoundStage.state == StageState.FAILED, RoundStage.priority == bindparam("priority")
    )
)


def load_pending_work(session: Session) -> PendingWork:
    """Whether there may be work to dispatch, in one query."""
    connection = session.connection()
    row = connection.execute(_WHAT_WAITS[connection.dialect.name]).one()
    due = row.due is not None and row.due <= cache_now(session, row.clock)
    return PendingWork(due, frozenset(p for p in PRIORITIES if row._mapping[p]))


def next_queued(session: Session, priority: str, limit: int) -> list[NextRound]:
    """The next queued rounds in fair order, at most `limit`."""
    if limit <= 0:
        return []
    values = {"priority": priority, "most": limit}
    courses = session.connection().execute(_COURSES_THAT_WAIT[priority], values).scalars().all()
    each = limit if len(courses) < limit else 1
    lines = [
        [
            NextRound(found, course, priority)
            for found in session.connection()
            .execute(_NEXT_OF_COURSE, {"priority": priority, "course": course, "most": each})
            .scalars()
        ]
        for course in courses
    ]
    in_turn = (one for turn in zip_longest(*lines) for one in turn if one is not None)
    return list(islice(in_turn, limit))


def mark_served(session: Session, rounds: Sequence[NextRound]) -> None:
    """Record that these rounds, in this order, are dispatched: their courses go to the end of the order."""
    for priority in PRIORITIES:
        mine = {one.course_id: place for place, one in enumerate(rounds, 1) if one.priority == priority}
        if not mine:
            continue
        if len(mine) == 1:
            ((course, place),) = mine.items()
            session.connection().execute(_SERVE_ONE[priority], {"at_course": course, "place": place})
            continue
        last = session.connection().execute(_LAST_SERVED[priority]).scalar_one()
        # by id: two that release at the same time must not wait for each other
        rows = [{"at_course": course, "place": last + place} for course, place in sorted(mine.items())]
        session.connection().execute(_SERVE[priority], rows)


def list_due_retries(session: Session, places: Mapping[tuple[str, str], int]) -> list[DueRetry]:
    """Stages whose next try is due, at most so many of each stage and priority, the longest due first."""
    found = []
    for (stage, priority), most in places.items():
        values = {"stage": stage, "priority": priority, "moment": now(session), "most": most}
        found += [DueRetry(one, stage, priority) for one in session.execute(_DUE_AGAIN, values).scalars()]
    return found


def count_backlog(session: Session, most: int) -> dict[tuple[str, str], int]:
    """(stage, priority) -> runs that wait in SQL, among the first `most` rounds of each priority.

    The bound keeps the cost constant.
    """
    found: Counter[tuple[str, str]] = Counter()
    for priority in PRIORITIES:
        for statement in (_WAITING_STAGES, _FAILED_STAGES):
            for stage, count in session.execute(statement, {"priority": priority, "most": most}):
                found[stage, priority] += count
    return dict(found)


def list_in_flight(session: Session, limit: int = 5000) -> list[tuple[str, float]]:
    """Dispatched runs with their age in seconds, the oldest first."""
    moment = now(session)
    query = select(Run.id, Run.dispatched_at).where(Run.state == RunState.DISPATCHED)
    query = query.order_by(Run.dispatched_at).limit(limit)
    return [(row.id, (moment - row.dispatched_at).total_seconds()) for row in session.execute(query)]


def list_stuck_rounds(session: Session, limit: int) -> list[str]:
    """Running rounds whose stages have all ended and that were not combined."""
    open_stage = (
        select(RoundStage.round_id)
        .where(
            RoundStage.round_id == Round.id,
            RoundStage.state.not_in((StageState.DONE, StageState.DEAD)),
        )
        .exists()
    )
    query = select(Round.id).where(Round.state == RoundState.RUNNING, ~open_stage).limit(limit)
    return list(session.execute(query).scalars())


MOST = 20_000
"""Rounds that are read, and so the highest position that is shown."""
_LINES = (
    select(Round.id, Round.course_id, Round.student_id, Round.queue_turn)
    .where(Round.state == _QUEUED, Round.priority == bindparam("priority"))
    .order_by(Round.course_id, Round.queue_turn, Round.created_at, Round.id)
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
    .where(Outbox.kind == "execute", Outbox.done_at.is_(None), Round.state == RoundState.RECEIVED.value)
    .order_by(Round.priority.desc(), Round.created_at, Round.id)
    .limit(MOST)
)
_SENT = (
    select(Run.id, Run.round_id, Run.stage, Round.priority)
    .join(Round, Round.id == Run.round_id)
    .where(Run.state == RunState.DISPATCHED, Round.priority.in_(PRIORITIES))
    .order_by(Run.dispatched_at, Run.id)
    .limit(MOST)
)


@dataclass(frozen=True)
class SentRun:
    """A run that was dispatched and has no result."""

    run: str
    round_id: str
    stage: str
    priority: str


@dataclass(frozen=True)
class QueuePositions:
    """A snapshot of the queue. A round that is not in it came later, or is not queued."""

    before: Mapping[str, int] = field(default_factory=dict)
    """Round -> rounds of its priority before it."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """Priority -> number of rounds."""

    def ahead(self, round_id: str, priority: str) -> int:
        """Number of rounds of its priority before it."""
        return self.before.get(round_id, self.waiting.get(priority, 0))

    def position(self, round_id: str, priority: str) -> int:
        """Its position, from 1: interactive rounds are before batch ones."""
        first = self.waiting.get("interactive", 0) if priority == "batch" else 0
        return first + self.ahead(round_id, priority) + 1


def load_positions(session: Session) -> QueuePositions:
    """A snapshot of the queue."""
    before: dict[str, int] = {}
    waiting = {}
    for priority in PRIORITIES:
        order = _order(session, priority)
        before |= {round_id: place for place, round_id in enumerate(order)}
        waiting[priority] = len(order)
    return QueuePositions(before, waiting)


def sandbox_positions(session: Session) -> dict[str, int]:
    """Position of each round whose sandbox run waits or runs, from 1; interactive ones first."""
    return {round_id: place for place, round_id in enumerate(session.scalars(_TO_RUN), 1)}


def _order(session: Session, priority: str) -> list[str]:
    lines: dict[int, list[tuple[int, str]]] = defaultdict(list)
    """Course -> (turn, round), in order."""
    last: dict[tuple[int, int], int] = {}
    """(Course, student) -> turn of the last round."""
    for row in session.execute(_LINES, {"priority": priority}):
        lines[row.course_id].append((row.queue_turn, row.id))
        last[row.course_id, row.student_id] = row.queue_turn
    for new in session.execute(_RECEIVED, {"priority": priority}):
        here, key = lines[new.course_id], (new.course_id, new.student_id)
        line = last[key] + 1 if key in last else here[0][0] if here else 0
        here.insert(bisect_right(here, line, key=lambda one: one[0]), (line, new.id))
        last[key] = line
    return list(_in_turns(lines, _turns(session, priority, len(lines))))


def _turns(session: Session, priority: str, courses: int) -> list[int]:
    """Courses, those served longest ago first."""
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


def list_sent(session: Session) -> list[SentRun]:
    """Dispatched runs without a result, in the order of dispatch."""
    return [SentRun(row.id, row.round_id, row.stage, row.priority) for row in session.execute(_SENT)]


def count_new_rounds(session: Session, within_s: float) -> dict[str, int]:
    """Priority -> rounds created in the last `within_s` seconds."""
    since = now(session) - timedelta(seconds=within_s)
    states = [state.value for state in RoundState]
    query = select(Round.priority, func.count()).where(
        Round.state.in_(states), Round.priority.in_(PRIORITIES), Round.created_at > since
    )
    return {row[0]: row[1] for row in session.execute(query.group_by(Round.priority))}
