"""Live status of submissions and queue times, in few queries and without reports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session

from grading.domain.messages import Message
from grading.domain.permissions import Actor
from grading.domain.round_states import RoundState
from grading.store import tables
from grading.store.accounts import users
from grading.store.bulk import chunks
from grading.store.database import now
from grading.store.tables import (
    Assignment,
    Grade,
    Membership,
    OpenSession,
    Outbox,
    Round,
    RoundStage,
    Run,
    Submission,
    SubmissionMember,
    User,
)
from grading.store.views.submission import StageView, SubmissionView


@dataclass(frozen=True)
class LiveStatus:
    """The live status of a submission; the rest is in `views.submission.SubmissionView`."""

    id: str
    course_id: int
    student_id: int
    members: tuple[int, ...]
    release: str
    round_id: str
    state: str
    priority: str
    failure: Message
    to_run: bool
    """Its sandbox run is queued or running."""
    created_at: datetime
    dispatched_at: datetime | None
    graded: bool
    """There is a grade, whoever may see it."""
    released: bool
    stages: tuple[StageView, ...]
    withdrawn: bool = False
    """The grade was released and withdrawn."""

    @property
    def final(self) -> bool:
        """Whether the state is final."""
        return RoundState(self.state).final


Standing = LiveStatus | SubmissionView
"""Values that describe a submission's state."""


@dataclass(frozen=True)
class Reader:
    """The reader of a page; `stamp` is that of their sessions."""

    stamp: str
    actor: Actor
    language: str
    sessions: frozenset[str] = frozenset()
    """Their open sessions."""


_HEADS = (
    select(
        Submission.id,
        Assignment.course_id,
        Submission.student_id,
        Assignment.release,
        Round.id.label("round_id"),
        Round.state,
        Round.priority,
        Round.failure,
        Submission.created_at,
        Round.dispatched_at,
        Grade.id.label("grade"),
        Grade.released_at,
        Grade.released_by,
    )
    .join(Round, and_(Round.submission_id == Submission.id, Round.current))
    .join(Assignment, Assignment.id == Submission.assignment_id)
    .outerjoin(Grade, Grade.round_id == Round.id)
)
_STAGES = (
    select(
        RoundStage.round_id,
        RoundStage.stage,
        RoundStage.state,
        RoundStage.tries,
        RoundStage.run_id,
        RoundStage.error,
        Run.id.label("accepted_run"),
        Run.machine,
        Run.model,
        Run.seconds,
        Run.output_tokens,
    )
    .outerjoin(Run, and_(Run.round_id == RoundStage.round_id, Run.stage == RoundStage.stage, Run.accepted))
    .order_by(RoundStage.round_id, RoundStage.stage)
)


_NO_MESSAGE = Message()


def load_statuses(session: Session, submission_ids: Iterable[str]) -> dict[str, LiveStatus]:
    """The live status of each of these submissions that exists."""
    found: dict[str, LiveStatus] = {}
    for ids in chunks([one for one in submission_ids if one.isalnum()]):
        heads = session.execute(_HEADS.where(Submission.id.in_(ids))).all()
        stages = _stages(session, [row.round_id for row in heads])
        members = _members(session, ids)
        running = _running(session, [row.round_id for row in heads if row.state == RoundState.RECEIVED])
        for row in heads:
            found[row.id] = LiveStatus(
                id=row.id,
                course_id=row.course_id,
                student_id=row.student_id,
                members=tuple(members.get(row.id, ())),
                release=row.release,
                round_id=row.round_id,
                state=row.state,
                priority=row.priority,
                failure=row.failure,
                to_run=row.round_id in running,
                created_at=row.created_at,
                dispatched_at=row.dispatched_at,
                graded=row.grade is not None,
                released=row.released_at is not None,
                stages=tuple(stages.get(row.round_id, ())),
                withdrawn=row.released_at is None and row.released_by is not None,
            )
    return found


def _stages(session: Session, rounds: Sequence[str]) -> Mapping[str, list[StageView]]:
    found: dict[str, list[StageView]] = defaultdict(list)
    for row in session.execute(_STAGES.where(RoundStage.round_id.in_(rounds))) if rounds else ():
        view = StageView.model_construct(
            stage=row.stage,
            state=row.state,
            tries=row.tries,
            run_id=row.run_id,
            accepted_run=row.accepted_run,
            machine=row.machine,
            model=row.model,
            seconds=row.seconds,
            tokens=row.output_tokens,
            error=row.error,
            message=_NO_MESSAGE,
        )
        found[row.round_id].append(view)
    return found


def _members(session: Session, ids: Sequence[str]) -> Mapping[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    query = select(SubmissionMember.submission_id, SubmissionMember.user_id)
    query = query.where(SubmissionMember.submission_id.in_(ids)).order_by(SubmissionMember.user_id)
    for submission_id, user_id in session.execute(query):
        found[submission_id].append(user_id)
    return found


def _running(session: Session, rounds: Sequence[str]) -> frozenset[str]:
    """Rounds whose sandbox run is queued or running."""
    if not rounds:
        return frozenset()
    query = select(Outbox.key).where(Outbox.kind == "execute", Outbox.key.in_(rounds))
    return frozenset(session.scalars(query.where(Outbox.done_at.is_(None))))


def load_readers(session: Session, user_ids: Iterable[int]) -> dict[int, Reader]:
    """Those of these users that are active."""
    found: dict[int, Reader] = {}
    for ids in chunks(sorted(set(user_ids))):
        roles: dict[int, dict[int, str]] = defaultdict(dict)
        courses = select(Membership.user_id, Membership.course_id, Membership.role)
        for user_id, course_id, role in session.execute(courses.where(Membership.user_id.in_(ids))):
            roles[user_id][course_id] = role
        own = (User.id, User.administrator, User.sessions, User.password_hash, User.language)
        query = select(*own, OpenSession.id.label("open")).outerjoin(OpenSession)
        rows = session.execute(query.where(User.id.in_(ids), ~User.disabled)).all()
        sessions: dict[int, set[str]] = defaultdict(set)
        for row in rows:
            sessions[row.id].add(row.open)
        for row in rows:
            actor = Actor(row.id, row.administrator, roles.get(row.id, {}))
            stamp = users.stamp_of(row.sessions, row.password_hash)
            found[row.id] = Reader(stamp, actor, row.language, frozenset(sessions[row.id]))
    return found


TYPICAL_S = 60.0
"""Seconds of one grading as long as none has been measured."""


@dataclass(frozen=True)
class Speed:
    """Speed of grading in the last hour, in seconds."""

    now: datetime
    typical_s: float = TYPICAL_S
    """From dispatch to the end of a round."""
    every_s: float = TYPICAL_S
    """Between two rounds that finish."""
    prepare_s: float = 0.0
    """From submission to queue, including the sandbox run."""
    combine_s: float = 0.0
    """From the last result to the grade."""


def load_speed(session: Session) -> Speed:
    """Speed by the 50 newest rounds of the last hour."""
    moment = now(session)
    last = (
        select(
            tables.Round.created_at,
            tables.Round.prepared_at,
            tables.Round.dispatched_at,
            tables.Round.finished_at,
            select(func.max(tables.Run.finished_at))
            .where(tables.Run.round_id == tables.Round.id)
            .scalar_subquery(),
        )
        .where(tables.Round.dispatched_at.is_not(None))
        .where(tables.Round.finished_at > moment - timedelta(hours=1))
        .order_by(tables.Round.finished_at.desc())
        .limit(50)
    )
    rows = session.execute(last).all()
    if not rows:
        return Speed(moment)
    spans = [(row[2], row[3]) for row in rows if row[2] and row[3]]
    busy = (max(end for _, end in spans) - min(start for start, _ in spans)).total_seconds()
    return Speed(
        moment,
        typical_s=max(1.0, _typical(spans)),
        every_s=busy / len(spans),
        prepare_s=_typical((row[0], row[1]) for row in rows),
        combine_s=_typical((row[4], row[3]) for row in rows),
    )


def _typical(spans: Iterable[tuple[datetime | None, datetime | None]]) -> float:
    known = [(end - start).total_seconds() for start, end in spans if start and end]
    return max(0.0, median(known)) if known else 0.0
