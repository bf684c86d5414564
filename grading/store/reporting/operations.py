"""What operators look at and set right: work in hand, messages that were given up, tokens, room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, func, literal_column, select, text, update
from sqlalchemy.orm import Session

from grading.domain.errors import NotFound
from grading.domain.model import RunState
from grading.shared.cache import Remembered
from grading.store.audit import note
from grading.store.database import always, now
from grading.store.tables import Assignment, Course, Outbox, Round, Run, Submission, Token, User

SHOWN = 25
"""Of what is in work, and of messages of a kind."""
PER_PAGE = 25
# as the index has it, word for word: a bound value would keep it from being used
DEAD: tuple[ColumnElement[bool], ...] = (Outbox.done_at.is_not(None), literal_column("outbox.error <> ''"))


@dataclass(frozen=True)
class InWork:
    """A run that was sent to machines and has not come back."""

    run_id: str
    stage: str
    attempt: int
    priority: str
    since_s: float
    submission_id: str
    number: int
    course_id: int
    course: str
    assignment: str


def in_work(session: Session) -> tuple[list[InWork], int]:
    """The runs that have been out longest, and how many there are in all."""
    moment = now(session)
    found = [
        InWork(
            run_id=row.id,
            stage=row.stage,
            attempt=row.attempt,
            priority=row.priority,
            since_s=max(0.0, (moment - row.dispatched_at).total_seconds()),
            submission_id=row.submission,
            number=row.number,
            course_id=row.course_id,
            course=row.course,
            assignment=row.title,
        )
        for row in session.execute(_in_work())
    ]
    if len(found) < SHOWN:
        return found, len(found)
    out = select(func.count()).select_from(Run).where(Run.state == RunState.DISPATCHED)
    return found, session.execute(out).scalar_one()


@cache
def _in_work() -> Any:
    return (
        select(
            Run.id, Run.stage, Run.attempt, Run.dispatched_at, Round.priority,
            Submission.id.label("submission"), Submission.number,
            Course.id.label("course_id"), Course.title.label("course"), Assignment.title,
        )
        .join(Round, Round.id == Run.round_id)
        .join(Submission, Submission.id == Round.submission_id)
        .join(Assignment, Assignment.id == Submission.assignment_id)
        .join(Course, Course.id == Assignment.course_id)
        .where(Run.state == literal_column(f"'{RunState.DISPATCHED.value}'"))
        .order_by(Run.dispatched_at, Run.id)
        .limit(always(SHOWN))
    )  # fmt: skip


@dataclass(frozen=True)
class DeadMessage:
    """A message that was given up, without what it says: that may be a student's."""

    id: int
    kind: str
    key: str
    tries: int
    error: str
    created_at: datetime
    done_at: datetime | None


def dead_counts(session: Session) -> Mapping[str, int]:
    """kind -> messages that were given up."""
    query = select(Outbox.kind, func.count()).where(*DEAD).group_by(Outbox.kind).order_by(Outbox.kind)
    return {row[0]: row[1] for row in session.execute(query)}


def dead_messages(session: Session, kinds: Iterable[str]) -> list[DeadMessage]:
    """Those of these kinds given up last, SHOWN of each."""
    columns = (
        Outbox.id,
        Outbox.kind,
        Outbox.key,
        Outbox.tries,
        Outbox.error,
        Outbox.created_at,
        Outbox.done_at,
    )
    found: list[DeadMessage] = []
    for kind in kinds:
        query = select(*columns).where(Outbox.kind == kind, *DEAD).order_by(Outbox.id.desc()).limit(SHOWN)
        found += [DeadMessage(*row) for row in session.execute(query)]
    return found


def send_again(session: Session, actor: str, kind: str = "", ids: tuple[int, ...] = ()) -> int:
    """Give messages that were given up all their tries again: these, or all of a kind. Returns how many."""
    chosen = Outbox.kind == kind if kind else Outbox.id.in_(ids)
    fresh = {"done_at": None, "not_before": now(session), "tries": 0, "error": ""}
    done = session.execute(
        update(Outbox).where(chosen, *DEAD).values(fresh).returning(Outbox.id, Outbox.kind)
    )
    rows = done.all()
    if rows:
        kinds = sorted({row.kind for row in rows})
        note(
            session,
            actor,
            "outbox.replay",
            f"outbox:{kind or 'chosen'}",
            {"count": len(rows), "kinds": kinds},
        )
    return len(rows)


@dataclass(frozen=True)
class TokenInUse:
    """A token that still opens something, and whose it is."""

    id: int
    name: str
    scopes: tuple[str, ...]
    owner_id: int
    owner: str
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True)
class Tokens:
    """A page of them."""

    items: tuple[TokenInUse, ...]
    page: int
    pages: int
    total: int


def tokens(session: Session, page: int = 1) -> Tokens:
    """All tokens in use, the newest first."""
    usable = (Token.revoked_at.is_(None), Token.expires_at > now(session), User.disabled.is_(False))
    told = (Token.id, Token.name, Token.scopes, Token.user_id, User.name.label("owner"))
    base = select(*told, Token.created_at, Token.expires_at, func.count().over().label("total"))
    base = base.join(User, User.id == Token.user_id).where(*usable).order_by(Token.id.desc())
    page = max(page, 1)
    rows = session.execute(base.limit(PER_PAGE).offset((page - 1) * PER_PAGE)).all()
    if not rows and page > 1:  # there are not so many
        return tokens(session, tokens(session).pages)
    total = rows[0].total if rows else 0
    pages = max(1, -(-total // PER_PAGE))
    items = tuple(
        TokenInUse(t.id, t.name, tuple(t.scopes), t.user_id, t.owner, t.created_at, t.expires_at)
        for t in rows
    )
    return Tokens(items, page, pages, total)


def end_token(session: Session, token_id: int, actor: str) -> str:
    """End anybody's token; returns its name. Raises NotFound."""
    row = session.get(Token, token_id)
    if row is None:
        raise NotFound("There is no such token.")
    if row.revoked_at is None:
        row.revoked_at = now(session)
        note(session, actor, "token.revoke", f"token:{token_id}", {"owner": row.user_id})
    return row.name


def size_bytes(session: Session) -> int:
    """What the database takes up, about, as it was at most ten minutes ago: to find out takes a while."""
    return _sizes.get(session.get_bind().engine.url, 1, lambda: _size_bytes(session))


_sizes: Remembered[int] = Remembered(100)


def _size_bytes(session: Session) -> int:
    if session.get_bind().dialect.name == "sqlite":
        pages, each = (
            session.execute(text(f"PRAGMA page_{what}")).scalar_one() for what in ("count", "size")
        )
        return int(pages) * int(each)
    return int(session.execute(select(func.pg_database_size(func.current_database()))).scalar_one())
