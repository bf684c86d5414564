"""Operations: runs in flight, dead messages, tokens, drained machines, figures of the database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    bindparam,
    cast,
    delete,
    func,
    literal,
    literal_column,
    null,
    select,
    text,
    union_all,
    update,
)
from sqlalchemy.orm import Session

from grading.broker.leases import stage_out
from grading.domain.errors import NotFound
from grading.domain.messages import define_message, verbatim
from grading.domain.round_states import RunState
from grading.scheduling.crossings import UsualPrompts
from grading.shared.cache import BoundedCache
from grading.store import audit
from grading.store.audit import write_audit
from grading.store.database import Store, cache_now, clock_column, literal_limit, now
from grading.store.reporting.metrics import KINDS, UNFINISHED, Waiting
from grading.store.rounds.retry import DEAD_STATES
from grading.store.tables import (
    Assignment,
    Audit,
    Course,
    Drain,
    EventReceiver,
    Outbox,
    Round,
    Run,
    Submission,
    Token,
    User,
)
from grading.store.trust import stage_drains

NO_SUCH_TOKEN = define_message("operations.no_such_token", "This token does not exist.")

SHOWN = 25
"""Rows that are listed of runs in flight, and of dead messages of a kind."""
PER_PAGE = 25
# as the index has it, word for word: a bound value would keep it from being used
DEAD: tuple[ColumnElement[bool], ...] = (Outbox.done_at.is_not(None), literal_column("outbox.error <> ''"))


@dataclass(frozen=True)
class RunInFlight:
    """A run that was dispatched and has no result."""

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


def list_runs_in_flight(session: Session) -> tuple[list[RunInFlight], int]:
    """The oldest runs in flight, and the number of all."""
    moment = now(session)
    found = [
        RunInFlight(
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
        .limit(literal_limit(SHOWN))
    )  # fmt: skip


@dataclass(frozen=True)
class DeadMessage:
    """A dead outbox message, without its payload, which may be a student's."""

    id: int
    kind: str
    key: str
    tries: int
    error: str
    created_at: datetime
    done_at: datetime | None


def count_dead_messages(session: Session) -> Mapping[str, int]:
    """Kind -> number of dead messages."""
    query = select(Outbox.kind, func.count()).where(*DEAD).group_by(Outbox.kind).order_by(Outbox.kind)
    return {row[0]: row[1] for row in session.execute(query)}


def list_dead_messages(session: Session, kinds: Iterable[str]) -> list[DeadMessage]:
    """The newest dead messages of these kinds, at most SHOWN of each."""
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


def retry_messages(session: Session, actor: str, kind: str = "", ids: tuple[int, ...] = ()) -> int:
    """Retry dead messages with all their tries: these, or all of a kind; returns how many."""
    chosen = Outbox.kind == kind if kind else Outbox.id.in_(ids)
    fresh = {"done_at": None, "not_before": now(session), "tries": 0, "error": ""}
    done = session.execute(
        update(Outbox).where(chosen, *DEAD).values(fresh).returning(Outbox.id, Outbox.kind)
    )
    rows = done.all()
    if rows:
        kinds = sorted({row.kind for row in rows})
        write_audit(
            session,
            actor,
            "outbox.replay",
            f"outbox:{kind or 'chosen'}",
            {"count": len(rows), "kinds": kinds},
        )
    return len(rows)


@dataclass(frozen=True)
class TokenInUse:
    """A valid token with its owner."""

    id: int
    name: str
    scopes: tuple[str, ...]
    owner_id: int
    owner: str
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True)
class Tokens:
    """A page of tokens."""

    items: tuple[TokenInUse, ...]
    page: int
    pages: int
    total: int


def list_tokens(session: Session, page: int = 1) -> Tokens:
    """All valid tokens, the newest first."""
    usable = (Token.revoked_at.is_(None), Token.expires_at > now(session), User.disabled.is_(False))
    columns = (Token.id, Token.name, Token.scopes, Token.user_id, User.name.label("owner"))
    base = select(*columns, Token.created_at, Token.expires_at, func.count().over().label("total"))
    base = base.join(User, User.id == Token.user_id).where(*usable).order_by(Token.id.desc())
    page = max(page, 1)
    rows = session.execute(base.limit(PER_PAGE).offset((page - 1) * PER_PAGE)).all()
    if not rows and page > 1:  # there are not so many
        return list_tokens(session, list_tokens(session).pages)
    total = rows[0].total if rows else 0
    pages = max(1, -(-total // PER_PAGE))
    items = tuple(
        TokenInUse(t.id, t.name, tuple(t.scopes), t.user_id, t.owner, t.created_at, t.expires_at)
        for t in rows
    )
    return Tokens(items, page, pages, total)


def revoke_token(session: Session, token_id: int, actor: str) -> str:
    """Revoke any user's token; returns its name. Raises NotFound."""
    row = session.get(Token, token_id)
    if row is None:
        raise NotFound(NO_SUCH_TOKEN)
    if row.revoked_at is None:
        row.revoked_at = now(session)
        write_audit(session, actor, "token.revoke", f"token:{token_id}", {"owner": row.user_id})
    return row.name


def database_bytes(session: Session) -> int:
    """Size of the database, cached for ten minutes, as it is slow to measure."""
    return _sizes.get(session.get_bind().engine.url, 1, lambda: _size_bytes(session))


def last_backup_age_s(session: Session) -> float | None:
    """Seconds since a back-up was last made, by the database's clock; nothing when none ever was.

    A database that was restored does not know the back-ups made since, but that one.
    """
    told = Audit.action.in_(("database.backup", "database.restore"))
    row = session.scalar(select(Audit).where(told).order_by(Audit.id.desc()).limit(1))
    if row is None:
        return None
    at = datetime.fromisoformat(row.detail["of"]) if row.action == "database.restore" else row.at
    return (now(session) - at).total_seconds()


def first_entry_age_s(session: Session) -> float:
    """Seconds since the first entry of the audit, by the database's clock; 0 without entries."""
    moment = now(session)
    return (moment - (session.scalar(select(func.min(Audit.at))) or moment)).total_seconds()


@dataclass(frozen=True)
class Upkeep:
    """What an operator looks after."""

    backup_age_s: float | None
    database_bytes: int


def load_upkeep(session: Session) -> Upkeep:
    """Age of the newest back-up, size of the database."""
    return Upkeep(last_backup_age_s(session), database_bytes(session))


_sizes: BoundedCache[int] = BoundedCache(100)


def _size_bytes(session: Session) -> int:
    if session.get_bind().dialect.name == "sqlite":
        pages, each = (
            session.execute(text(f"PRAGMA page_{what}")).scalar_one() for what in ("count", "size")
        )
        return int(pages) * int(each)
    return int(session.execute(select(func.pg_database_size(func.current_database()))).scalar_one())


@dataclass(frozen=True)
class Figures:
    """Figures of one moment."""

    rounds: Mapping[tuple[str, str], Waiting]
    """State and priority -> rounds that have not ended."""
    outbox: Mapping[str, Waiting]
    """Kind -> messages that are not sent."""
    dead: Mapping[str, int]
    """Kind -> dead messages."""
    paused: tuple[str, ...]
    """Number of event receivers that are paused."""
    dead_rounds: int
    """Dead rounds of the reader's courses."""


def load_figures(session: Session, course_ids: frozenset[int] | None) -> Figures:
    """Count everything at once; `dead_rounds` in these courses (None: all)."""
    query = _query(session.get_bind().dialect.name, course_ids is not None)
    found = session.execute(query, {} if course_ids is None else {"course_ids": list(course_ids)}).all()
    moment = cache_now(session, found[0].clock)
    of: dict[str, dict[tuple[str, str], Waiting]] = {}
    for what, one, other, count, oldest, _clock in found:
        age = max(0.0, (moment - oldest).total_seconds()) if oldest is not None else 0.0
        of.setdefault(what, {})[one, other] = Waiting(count, age)
    none = {(s.value, priority): Waiting(0, 0.0) for s in UNFINISHED for priority in ("interactive", "batch")}
    return Figures(
        rounds=none | of.get("round", {}),
        outbox=dict.fromkeys(KINDS, Waiting(0, 0.0))
        | {name[0]: one for name, one in of.get("sent", {}).items()},
        dead={name[0]: one.count for name, one in sorted(of.get("dead", {}).items())},
        paused=tuple(sorted(name[0] for name in of.get("paused", {}))),
        dead_rounds=of["dead rounds"]["", ""].count,
    )


@cache
def _query(dialect: str, some: bool) -> Any:
    """A row for each figure: name, label, count, oldest time, and the database's time."""
    never, every = cast(null(), Round.created_at.type), func.count()
    lost = Round.current & Round.state.in_(DEAD_STATES)
    if some:
        lost &= Round.course_id.in_(bindparam("course_ids", expanding=True))

    def part(what: str, one: Any, other: Any, count: Any, oldest: Any) -> Any:
        return select(literal(what).label("what"), one, other, count, oldest, clock_column(dialect))

    nothing = literal("")
    return union_all(
        part("round", Round.state, Round.priority, every, func.min(Round.created_at))
        .where(Round.state.in_(UNFINISHED))
        .group_by(Round.state, Round.priority),
        part("sent", Outbox.kind, nothing, every, func.min(Outbox.created_at))
        .where(Outbox.done_at.is_(None))
        .group_by(Outbox.kind),
        part("dead", Outbox.kind, nothing, every, never).where(*DEAD).group_by(Outbox.kind),
        part("paused", EventReceiver.name, nothing, literal(1), never).where(
            EventReceiver.paused_at.is_not(None)
        ),
        part("dead rounds", nothing, nothing, every, never).select_from(Round).where(lost),
    )


MAX_RUNS_READ = 300
"""Newest runs that are read: enough for a few of each of many machines."""


@dataclass(frozen=True)
class RecentRun:
    """A run that ended."""

    stage: str
    state: str
    error: str
    seconds: float | None
    tokens: int | None
    finished_at: datetime
    ago_s: float


def list_recent_runs(session: Session, each: int = 5) -> dict[str, list[RecentRun]]:
    """Machine -> its last runs, the newest first."""
    rows = session.execute(_newest(session.get_bind().dialect.name), {"each": each}).all()
    found: dict[str, list[RecentRun]] = {}
    for machine, stage, state, error, seconds, tokens, at, clocked in rows:
        ago = max(0.0, (cache_now(session, clocked) - at).total_seconds())
        mine = found.setdefault(machine or "", [])
        mine.append(RecentRun(stage, state, error or "", seconds, tokens, at, ago))
    found.pop("", None)
    return found


@cache
def _newest(dialect: str) -> Any:
    newest = (
        select(Run.machine, Run.stage, Run.state, Run.error, Run.seconds, Run.output_tokens, Run.finished_at)
        .where(Run.finished_at.is_not(None))
        .order_by(Run.finished_at.desc())
        .limit(literal_limit(MAX_RUNS_READ))
        .subquery()
    )
    place = func.row_number().over(partition_by=newest.c.machine, order_by=newest.c.finished_at.desc())
    placed = select(newest, place.label("place")).subquery()
    columns = [placed.c[one.key] for one in newest.c]
    query = select(*columns, clock_column(dialect)).where(placed.c.place <= bindparam("each"))
    return query.order_by(placed.c.finished_at.desc())


@dataclass(frozen=True)
class DatabaseFacts:
    """Kind and version of the database, durability of its commits, and its time."""

    kind: str
    version: str
    durable: bool
    now: datetime


def file_of(store: Store) -> Path | None:
    """The file of an SQLite database, else None."""
    url = store.engine.url
    return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None


def load_facts(store: Store) -> DatabaseFacts:
    """Query the database's facts. Raises errors of SQLAlchemy."""
    with store.read() as session:
        if file_of(store) is not None:
            version = str(session.scalar(text("select sqlite_version()")))
            durable = session.scalar(text("pragma journal_mode")) == "wal"
            return DatabaseFacts("SQLite", version, durable, now(session))
        version = str(session.scalar(text("show server_version")))
        settings = (session.scalar(text(f"show {name}")) for name in ("fsync", "synchronous_commit"))
        return DatabaseFacts("PostgreSQL", version, "off" not in settings, now(session))


def list_drained(session: Session) -> dict[str, str]:
    """Names of the drained machines, each with the reason."""
    return {row.machine: row.why for row in session.execute(_drained())}


@cache
def _drained() -> Select[str, str]:
    return select(Drain.machine, Drain.why).order_by(Drain.machine)


def drain(session: Session, machine: str, by: str, why: str) -> None:
    """Drain a machine; again: change the reason."""
    known = session.get(Drain, machine)
    if known is None:
        session.add(Drain(machine=machine, by=by, why=why[:200], since=now(session)))
    else:
        known.why = why[:200]
    audit.write_audit(session, by, "machine.drain", f"machine:{machine}", {"why": why[:200]})


def undrain(session: Session, machine: str, by: str) -> bool:
    """End the drain of a machine. False when it is not drained."""
    gone = session.execute(delete(Drain).where(Drain.machine == machine).returning(Drain.machine)).first()
    if gone is None:
        return False
    audit.write_audit(session, by, "machine.undrain", f"machine:{machine}")
    return True


def set_drained(session: Session, machine: str, by: str, *, out: bool, why: str = "") -> list[str]:
    """Drain a machine or end its drain; returns what `list_out` does then."""
    if out:
        drain(session, machine, by, why)
    else:
        undrain(session, machine, by)
    return list_out(session)


def set_stage_drained(
    session: Session, machine: str, stage: str, by: str, *, out: bool, why: str = ""
) -> list[str]:
    """Drain one stage of a machine or resume it; returns what `list_out` does then."""
    if out:
        stage_drains.drain_stage(session, machine, stage, by, verbatim(why[:200]))
    else:
        stage_drains.undrain_stage(session, machine, stage, by)
    return list_out(session)


def list_out(session: Session) -> list[str]:
    """All that is out, machines and stages of machines, for `Dispatch.tell_out`."""
    return [*list_drained(session), *(stage_out(*place) for place in stage_drains.list_drains(session))]


USUAL_RUNS = 500
"""The latest runs from which the lengths of usual prompts are taken."""


def usual_prompts(session: Session, stages: Iterable[str]) -> UsualPrompts:
    """Medians of the latest accepted runs of these stages, by their engines' own counts of tokens."""
    rows = session.execute(
        select(Run.prompt_tokens, Run.cached_tokens, Run.output_tokens)
        .where(Run.stage.in_(list(stages)), Run.accepted, Run.prompt_tokens > 0)
        .order_by(Run.finished_at.desc())
        .limit(USUAL_RUNS)
    ).all()
    if not rows:
        return UsualPrompts()
    return UsualPrompts(
        runs=len(rows),
        known=median(row.cached_tokens or 0 for row in rows),
        new=median(row.prompt_tokens - (row.cached_tokens or 0) for row in rows),
        output=median(row.output_tokens or 0 for row in rows),
    )
