"""Retention: count and delete rows past their retention time, in small chunks.

Rounds in progress and grades that were not released stay, whatever their age.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, exists, func, null, or_, select, tuple_, update
from sqlalchemy.orm import Session

from grading.config.settings import Retention
from grading.domain.round_states import RoundState
from grading.domain.second_opinions import PRIORITY
from grading.store.bulk import chunks, delete_rows
from grading.store.change_tracking import TRACKED_MANUALLY
from grading.store.database import now
from grading.store.experiments import examples
from grading.store.privacy.deletion import (
    delete_class_uploads,
    delete_prompts,
    delete_submissions,
    lock_submissions,
)
from grading.store.rounds import prompts
from grading.store.submissions.pending_uploads import delete_uploads
from grading.store.tables import (
    Audit,
    Base,
    CachedExecution,
    ClassUpload,
    Example,
    GatewayUse,
    GoldenSubmission,
    Grade,
    IdempotencyKey,
    InboundWebhook,
    Outbox,
    Precheck,
    Round,
    Run,
    SentMessage,
    Submission,
    Upload,
)

CHUNK_SIZE = 50
"""Submissions, rounds or class uploads deleted in one transaction."""
MANY = 1000
"""Small rows deleted in one transaction."""
FINAL = [state.value for state in RoundState if state.final]
UPLOADS_DAYS = 1
"""Days until a pending upload is deleted, as its page says, the code that was checked last, and the text of a
removed example."""
NEVER_DELETED = "student.erase"
"""Audit rows of this action stay: after a restore they say who must be erased again."""


def count_overdue(session: Session, kept: Retention) -> dict[str, int]:
    """Number of overdue rows of each kind."""
    return {
        kind: session.execute(select(func.count()).select_from(query.subquery())).scalar_one()
        for kind, query in _queries(session, kept).items()
    }


def delete_chunk(session: Session, kept: Retention) -> Counter[str]:
    """Delete one chunk of overdue rows; returns counts, empty when nothing is left."""
    done: Counter[str] = Counter()
    for kind, query in _queries(session, kept).items():
        done[kind] = _remove(session, kind, query)
    return +done


def _queries(session: Session, kept: Retention) -> dict[str, Select[Any]]:
    """Queries for the keys of overdue or unused rows, by kind."""
    moment = now(session)
    days = {
        "submissions": kept.submissions_days,
        "results": kept.results_days,
        "executions": kept.executions_days,
        "class zips": kept.batches_days,
        "uploads": UPLOADS_DAYS,
        "prechecks": UPLOADS_DAYS,
        "removed examples": UPLOADS_DAYS,
        "audit": kept.audit_days,
        "gateway use": kept.use_days,
        "idempotency keys": kept.messages_days,
        "inbound webhooks": kept.messages_days,
        "outbox": kept.messages_days,
        "sent messages": kept.messages_days,
    }
    queries = {
        kind: _query(kind, moment - timedelta(days=number)) for kind, number in days.items() if number > 0
    }
    # after all that may refer to them, and last: see `prompts.delete_unused_messages`
    return {**queries, "system messages": prompts.unused_messages()}


def _query(kind: str, before: datetime) -> Any:
    if kind == "submissions":
        return (
            select(Submission.id)
            .where(Submission.created_at < before, ~_open_rounds())
            .order_by(Submission.created_at)
        )
    if kind == "results":
        return _old_results(before)
    if kind == "executions":
        return select(CachedExecution.key).where(CachedExecution.created_at < before)
    if kind == "class zips":
        return select(ClassUpload.id).where(ClassUpload.created_at < before)
    if kind == "uploads":
        return select(Upload.id).where(Upload.created_at < before)
    if kind == "prechecks":
        return select(Precheck.id).where(Precheck.created_at < before)
    if kind == "removed examples":
        return select(Example.id).where(Example.removed_at < before, Example.excerpt != "")
    if kind == "audit":
        return select(Audit.id).where(Audit.at < before, Audit.action != NEVER_DELETED)
    return _messages(kind, before)


def _messages(kind: str, before: datetime) -> Any:
    """Of what came from outside and what went there."""
    if kind == "gateway use":
        table = GatewayUse
        return select(table.token_id, table.day, table.model).where(table.day < before.date())
    if kind == "idempotency keys":
        return select(IdempotencyKey.caller, IdempotencyKey.key).where(IdempotencyKey.created_at < before)
    if kind == "inbound webhooks":
        return select(InboundWebhook.connection, InboundWebhook.message_id).where(
            InboundWebhook.received_at < before
        )
    if kind == "sent messages":
        return select(SentMessage.id).where(SentMessage.at < before)
    return select(Outbox.id).where(Outbox.done_at < before)


def _open_rounds() -> ColumnElement[bool]:
    """Whether a submission has a round in progress, or a grade that its student has not seen."""
    hidden = select(Grade.id).where(
        Grade.submission_id == Submission.id, Grade.round_id == Round.id, Grade.released_at.is_(None)
    )
    # a second opinion may wait for ever
    under_way = Round.state.not_in(FINAL) & (Round.priority != PRIORITY)
    mine = Round.submission_id == Submission.id
    return select(Round.id).where(mine, or_(under_way, Round.current & hidden.exists())).exists()


def _old_results(before: datetime) -> Select[Any]:
    """Finished rounds that still have prepared documents and results.

    A current round that is partial or failed may be retried and keeps what that needs; a golden submission
    is graded again each night.
    """
    hidden = select(Grade.id).where(Grade.round_id == Round.id, Grade.released_at.is_(None)).exists()
    over = Round.state.in_(FINAL) & ~Round.current
    seen = (Round.state == RoundState.GRADED) & ~hidden
    golden = Round.current & exists().where(GoldenSubmission.submission_id == Round.submission_id)
    still = Round.prepared.is_not(null())
    return select(Round.id).where(Round.finished_at < before, still, ~golden, or_(over, seen))


def _remove(session: Session, kind: str, query: Select[Any]) -> int:
    """Delete one chunk of a kind; returns how many."""
    if kind in TABLES:
        return _remove_rows(session, TABLES[kind], query)
    ids = list(session.scalars(query.limit(CHUNK_SIZE)))
    if kind == "submissions":
        # one that is graded again since the query was made has a round under way by now
        lock_submissions(session, Submission.id.in_(ids))
        ids = list(session.scalars(query.where(Submission.id.in_(ids))))
    if ids:
        BY_ID[kind](session, ids)
    return len(ids)


def _remove_rows(session: Session, table: type[Base], query: Select[Any]) -> int:
    key = list(table.__table__.primary_key)
    rows = [tuple(row) for row in session.execute(query.limit(MANY))]
    removed = 0
    for some in chunks(rows):
        these = key[0].in_([value for (value,) in some]) if len(key) == 1 else tuple_(*key).in_(some)
        removed += delete_rows(session, table, these).total()
    return removed


def _strip(session: Session, rounds: list[str]) -> None:
    """Delete the results of runs but for their provenance; report and grade stay."""
    unread = update(Round).where(Round.id.in_(rounds)).values(prepared=null())
    session.execute(unread.execution_options(**TRACKED_MANUALLY))
    delete_prompts(session, rounds)
    for run in session.execute(select(Run.id, Run.result).where(Run.round_id.in_(rounds))):
        origin = (run.result or {}).get("provenance")
        left = {"provenance": origin} if origin is not None else null()
        session.execute(update(Run).where(Run.id == run.id).values(result=left))


BY_ID: dict[str, Callable[[Session, list[Any]], object]] = {
    "submissions": delete_submissions,
    "results": _strip,
    "class zips": delete_class_uploads,
    "removed examples": examples.delete_texts,
    "uploads": delete_uploads,
    "system messages": prompts.delete_unused_messages,
}
TABLES: dict[str, type[Base]] = {
    "audit": Audit,
    "idempotency keys": IdempotencyKey,
    "inbound webhooks": InboundWebhook,
    "outbox": Outbox,
    "sent messages": SentMessage,
    "prechecks": Precheck,
    "executions": CachedExecution,
    "gateway use": GatewayUse,
}
