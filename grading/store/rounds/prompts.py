"""Stored prompts of runs: system messages once for all, user messages with their runs."""

from __future__ import annotations

import hashlib
import logging
import zlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import LargeBinary, Select, Table, bindparam, select
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from grading.domain.base_value import Value
from grading.domain.errors import NotFound
from grading.domain.jobs import Provenance, Result, SentPrompt
from grading.domain.messages import define_message
from grading.domain.round_states import RunState
from grading.store.bulk import delete_rows
from grading.store.rounds import example_usage
from grading.store.tables import Base, Prompt, Round, Run, SystemMessage

NO_SUCH_RUN = define_message("prompts.no_such_run", "This run does not exist.")

log = logging.getLogger(__name__)
MOST_BYTES = 4 * 1024 * 1024
"""Limit for both messages together, as UTF-8; a larger prompt is not stored."""
Missing = Literal["not over", "lost", "no prompt", "not sent", "too large", "removed", "erased"]
"""Why there is no prompt."""

_PROMPTS: Table = Base.metadata.tables["prompts"]
_MESSAGES: Table = Base.metadata.tables["system_messages"]
# locked, so that whoever removes unused ones lets it stay
_HOLD = (
    select(_MESSAGES.c.sha256)
    .where(_MESSAGES.c.sha256 == bindparam("name"))
    .with_for_update(read=True, key_share=True)
)
_PUT = {
    (name, table.name): insert(table).on_conflict_do_nothing()
    for name, insert in (("sqlite", sqlite_insert), ("postgresql", postgresql_insert))
    for table in (_PROMPTS, _MESSAGES)
}
_HELD = _HOLD.with_only_columns(bindparam("run"), _MESSAGES.c.sha256, bindparam("user", type_=LargeBinary))
_KEEP = {
    name: insert(_PROMPTS)
    .from_select(["run_id", "system_sha256", "user_message"], _HELD)
    .on_conflict_do_nothing()
    .returning(_PROMPTS.c.run_id)
    for name, insert in (("sqlite", sqlite_insert), ("postgresql", postgresql_insert))
}
"""Insert a prompt whose system message is stored already, which is the common case."""


class RunPrompt(Value):
    """A run with its prompt, or the reason why there is none."""

    run_id: str
    round_id: str
    round_number: int
    stage: str
    attempt: int
    state: str
    error: str | None
    accepted: bool
    """Its result is the accepted one of its stage."""
    finished_at: datetime | None
    provenance: Provenance | None
    prompt: SentPrompt | None
    missing: Missing | None

    @property
    def sha256(self) -> str:
        """The hash of the stored messages, computed as machines do; empty without them."""
        if self.prompt is None:
            return ""
        return hashlib.sha256(f"{self.prompt.system}\0{self.prompt.user}".encode()).hexdigest()

    @property
    def intact(self) -> bool | None:
        """Whether the stored messages have the hash that the machine sent; None when there is nothing to
        compare.
        """
        if self.prompt is None or self.provenance is None:
            return None
        return self.sha256 == self.provenance.prompt_hash


def store_prompt(session: Session, result: Result) -> None:
    """Store the prompt of a result, unless its run has one; failures never stop the result.

    A prompt that is too large, or that the database does not accept, is dropped with a log line.
    """
    if result.prompt is None:
        return
    shown = result.provenance.examples
    if shown and not example_usage.all_exist(session, shown):
        log.info("the prompt of run %s is not stored: it contains an example that was erased", result.run_id)
        return
    try:
        system, user = result.prompt.system.encode(), result.prompt.user.encode()
    except UnicodeEncodeError:
        log.warning("the prompt of run %s is not stored: it is not text", result.run_id)
        return
    if len(system) + len(user) > MOST_BYTES:
        log.warning(
            "the prompt of run %s is not stored: %d bytes exceed the limit",
            result.run_id,
            len(system) + len(user),
        )
        _put(session, _PROMPTS, run_id=result.run_id)
        return
    name, packed = hashlib.sha256(system).hexdigest(), zlib.compress(user)
    connection, row = session.connection(), {"run": result.run_id, "name": name, "user": packed}
    if connection.execute(_KEEP[connection.dialect.name], row).first() is None:
        _keep_system(session, name, system)
        _put(session, _PROMPTS, run_id=result.run_id, system_sha256=name, user_message=packed)


def _keep_system(session: Session, name: str, content: bytes) -> None:
    """Store a system message and lock it, so that it is not deleted before this transaction commits."""
    while session.connection().execute(_HOLD, {"name": name}).first() is None:
        # one that another adds meanwhile is waited for; were it removed as unused at once, it is added again
        _put(session, _MESSAGES, sha256=name, content=zlib.compress(content))


def _put(session: Session, table: Table, **row: Any) -> None:
    """Insert a row unless one with its key exists."""
    connection = session.connection()
    connection.execute(_PUT[connection.dialect.name, table.name], row)


def load_run_prompt(session: Session, submission_id: str, run_id: str) -> RunPrompt:
    """A run of a submission, of any of its rounds, with its prompt. Raises NotFound."""
    query = (
        select(Run, Round.number)
        .join(Round, Round.id == Run.round_id)
        .where(Run.id == run_id, Round.submission_id == submission_id)
    )
    found = session.execute(query).one_or_none() if run_id.isalnum() else None
    if found is None:
        raise NotFound(NO_SUCH_RUN)
    run, number = found
    content = run.result or {}
    origin = content.get("provenance")
    provenance = None if origin is None else Provenance.model_validate(origin)
    prompt, too_large = _read(session, run_id)
    return RunPrompt(
        run_id=run.id,
        round_id=run.round_id,
        round_number=number,
        stage=run.stage,
        attempt=run.attempt,
        state=run.state,
        error=run.error,
        accepted=run.accepted,
        finished_at=run.finished_at,
        provenance=provenance,
        prompt=prompt,
        missing=None if prompt else _missing(session, run, provenance, too_large),
    )


def _read(session: Session, run_id: str) -> tuple[SentPrompt | None, bool]:
    """The prompt, and whether it was too large to be stored."""
    query = (
        select(Prompt.user_message, SystemMessage.content)
        .outerjoin(SystemMessage, SystemMessage.sha256 == Prompt.system_sha256)
        .where(Prompt.run_id == run_id)
    )
    row = session.execute(query).one_or_none()
    if row is None:
        return None, False
    if row.user_message is None or row.content is None:
        return None, True
    return SentPrompt(system=text(row.content), user=text(row.user_message)), False


def text(content: bytes) -> str:
    """A stored message as text."""
    return zlib.decompress(content).decode()


def _missing(session: Session, run: Run, provenance: Provenance | None, too_large: bool) -> Missing:
    if provenance and provenance.examples and not example_usage.all_exist(session, provenance.examples):
        return "erased"
    return "too large" if too_large else _why(run, provenance)


def _why(run: Run, provenance: Provenance | None) -> Missing:
    if run.state == RunState.DISPATCHED:
        return "not over"
    if run.state == RunState.LOST:
        return "lost"
    if "ok" not in (run.result or {}):  # retention leaves only how a result came about
        return "removed"
    return "not sent" if provenance and provenance.prompt_hash else "no prompt"


def unused_messages() -> Select[Any]:
    """A query for the hashes of system messages that no run refers to."""
    used = select(Prompt.run_id).where(Prompt.system_sha256 == SystemMessage.sha256).exists()
    return select(SystemMessage.sha256).where(~used).order_by(SystemMessage.sha256)


def delete_unused_messages(session: Session, names: Sequence[str]) -> int:
    """Delete those of these system messages that are still unused; returns how many.

    Must be the last statement of its transaction that waits: transactions that record results hold rounds.
    """
    removed = 0
    for name in names:
        used = select(Prompt.run_id).where(Prompt.system_sha256 == name).exists()
        try:
            with session.begin_nested():
                removed += delete_rows(session, SystemMessage, SystemMessage.sha256 == name, ~used).total()
        except IntegrityError:
            continue  # a run refers to it since a moment ago
    return removed
