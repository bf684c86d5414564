"""Tables of grading: rounds, stages, runs, prompts, grades."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Boolean,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column, relationship

from grading.domain.messages import Message
from grading.store.tables.assignments import RubricVersion, Submission
from grading.store.tables.base import Base, Id, new_id

QUEUED: Mapping[str, Any] = {
    "sqlite_where": text("state = 'queued'"),
    "postgresql_where": text("state = 'queued'"),
}


TO_STRIP: Mapping[str, Any] = {
    "sqlite_where": text("prepared is not null"),
    "postgresql_where": text("prepared is not null"),
}


TO_REVIEW: Mapping[str, Any] = {
    "sqlite_where": text("released_at is null and reviewed_at is null"),
    "postgresql_where": text("released_at is null and reviewed_at is null"),
}


NOT_RELEASED: Mapping[str, Any] = {
    "sqlite_where": text("released_at is null"),
    "postgresql_where": text("released_at is null"),
}


FLAG_TEXT = 4000
"""Characters of the flags' messages that lists search."""


def _flag_text(context: Any) -> str:
    """The flags' messages of the report that is stored."""
    found = context.get_current_parameters()["report"].get("flags", ())
    return "\n".join(str(flag.get("message", "")) for flag in found)[:FLAG_TEXT]


def _flag_messages(context: Any) -> list[dict[str, Any]]:
    """Codes and parameters of the flags of the report that is stored, with the sentences in English."""
    found = context.get_current_parameters()["report"].get("flags", ())
    return [
        {
            "code": one.get("message_code", ""),
            "params": one.get("params", {}),
            "message": one.get("message", ""),
        }
        for one in found
    ]


def _criterion_points(context: Any) -> dict[str, Any]:
    """The points by criterion of the report that is stored."""
    found = context.get_current_parameters()["report"].get("criteria", ())
    return {str(one.get("criterion")): one.get("points") for one in found}


class Round(Base):
    """One grading of one submission. At most one round of a submission is current."""

    __tablename__ = "rounds"
    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"))
    number: Mapped[int]
    reason: Mapped[str] = mapped_column(String(20))
    rubric_version_id: Mapped[int] = mapped_column(ForeignKey("rubric_versions.id"))
    state: Mapped[str] = mapped_column(String(20))
    current: Mapped[bool] = mapped_column(Boolean, default=True)
    priority: Mapped[str] = mapped_column(String(20), default="interactive")
    course_id: Mapped[int] = mapped_column(ForeignKey("courses.id"))
    student_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    queue_turn: Mapped[int] = mapped_column(Integer, default=0)
    """Round-robin turn while it is queued, see `grading.store.rounds.queue`."""
    prepared: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    """Pseudonymised documents and evidence: what every job of the round contains. Large."""
    failure: Mapped[Message] = mapped_column(default=Message())
    created_at: Mapped[datetime]
    prepared_at: Mapped[datetime | None]
    dispatched_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    withdrawn_by: Mapped[int | None]
    """Id of the user who had withdrawn its grade when the round was retried."""
    submission: Mapped[Submission] = relationship()
    rubric_version: Mapped[RubricVersion] = relationship()
    stages: Mapped[list[RoundStage]] = relationship(order_by="RoundStage.stage")
    __table_args__ = (
        UniqueConstraint("submission_id", "number"),
        Index(
            "one_current_round",
            "submission_id",
            unique=True,
            sqlite_where=text("current"),
            postgresql_where=text("current"),
        ),
        # holds all that is asked for of somebody who is erased, or whose data are given out
        Index("rounds_of_student", "student_id", "course_id", "id"),
        Index("rounds_by_state", "state", "priority", "created_at"),
        # only what waits, whatever has ever been graded; each holds all that is asked of it
        Index("queued_rounds", "priority", "course_id", "queue_turn", "created_at", "id", **QUEUED),
        Index("queued_of_student", "priority", "course_id", "student_id", "queue_turn", **QUEUED),
        # holds all that measures need: the rows are large
        Index("rounds_by_end", "finished_at", "state", "priority", "created_at"),
        # what retention has still to strip, whatever it has ever stripped
        Index("rounds_to_strip", "finished_at", **TO_STRIP),
    )


class RoundStage(Base):
    """One stage of a round: its tries and its latest run."""

    __tablename__ = "round_stages"
    round_id: Mapped[str] = mapped_column(ForeignKey("rounds.id"), primary_key=True)
    stage: Mapped[str] = mapped_column(String(40), primary_key=True)
    state: Mapped[str] = mapped_column(String(20))
    priority: Mapped[str] = mapped_column(String(20), default="interactive")
    """Copy of its round's, for the index of due retries."""
    tries: Mapped[int] = mapped_column(Integer, default=0)
    """Runs that a machine began, or may have begun."""
    runs: Mapped[int] = mapped_column(Integer, default=0)
    """Runs that were dispatched."""
    losses: Mapped[int] = mapped_column(Integer, default=0)
    """Runs that were begun and lost with their machine."""
    alone: Mapped[bool] = mapped_column(Boolean, default=False)
    """Its run was lost together with others: the next one gets a machine to itself."""
    avoid: Mapped[list[Any]] = mapped_column(default=list)
    """Machines that failed at it; others are tried first."""
    run_id: Mapped[str | None] = mapped_column(Id)
    not_before: Mapped[datetime | None]
    error: Mapped[str | None] = mapped_column(String(40))
    message: Mapped[Message] = mapped_column(default=Message())
    __table_args__ = (Index("stages_by_state", "state", "priority", "stage", "not_before"),)


class Run(Base):
    """One execution of one stage of one round. At most one run of a stage is accepted."""

    __tablename__ = "runs"
    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    round_id: Mapped[str] = mapped_column(ForeignKey("rounds.id"))
    stage: Mapped[str] = mapped_column(String(40))
    attempt: Mapped[int]
    state: Mapped[str] = mapped_column(String(20))
    accepted: Mapped[bool] = mapped_column(Boolean, default=False)
    machine: Mapped[str | None] = mapped_column(String(40))
    error: Mapped[str | None] = mapped_column(String(40))
    result: Mapped[dict[str, Any] | None]
    dispatched_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    engine: Mapped[str | None] = mapped_column(String(40))
    model: Mapped[str | None] = mapped_column(String(200))
    seconds: Mapped[float | None] = mapped_column(Float)
    first_token_s: Mapped[float | None] = mapped_column(Float)
    prompt_tokens: Mapped[int | None]
    cached_tokens: Mapped[int | None]
    output_tokens: Mapped[int | None]
    __table_args__ = (
        UniqueConstraint("round_id", "stage", "attempt"),
        Index(
            "one_accepted_run",
            "round_id",
            "stage",
            unique=True,
            sqlite_where=text("accepted"),
            postgresql_where=text("accepted"),
        ),
        Index("runs_by_state", "state", "dispatched_at"),
        Index("runs_by_end", "finished_at"),
    )


class SystemMessage(Base):
    """System message of prompts, stored once for all runs that were sent it."""

    __tablename__ = "system_messages"
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    content: Mapped[bytes] = mapped_column(LargeBinary)
    """UTF-8, compressed by zlib."""


class Prompt(Base):
    """The prompt of a run. Without messages it was too large to be stored."""

    __tablename__ = "prompts"
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    system_sha256: Mapped[str | None] = mapped_column(ForeignKey("system_messages.sha256"), index=True)
    user_message: Mapped[bytes | None] = mapped_column(LargeBinary)
    """UTF-8, compressed by zlib: the part about the student's work."""


class Grade(Base):
    """Report and points of one round; at most one for each. Students see it once it is released.

    `report` stays as it was combined. People's changes are in `changes`; `grading.store.grades.final_score`
    puts both together into the points here.
    """

    __tablename__ = "grades"
    id: Mapped[int] = mapped_column(primary_key=True)
    round_id: Mapped[str] = mapped_column(ForeignKey("rounds.id"), unique=True)
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), index=True)
    points: Mapped[float | None] = mapped_column(Float)
    points_so_far: Mapped[float] = mapped_column(Float)
    max_points: Mapped[float] = mapped_column(Float)
    final_points: Mapped[float | None] = mapped_column(Float)
    """What counts: `points` with the adjustment and the late credit."""
    adjustment: Mapped[float] = mapped_column(Float, default=0.0)
    """Points that staff added to the total, or subtracted."""
    credit: Mapped[float] = mapped_column(Float, default=1.0)
    """Share of the points that a late submission keeps."""
    held: Mapped[bool] = mapped_column(Boolean, default=False)
    report: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    released_at: Mapped[datetime | None]
    released_by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    """Id of the user who released it; without `released_at`, who withdrew it."""
    reviewed_at: Mapped[datetime | None]
    reviewed_by: Mapped[int | None]
    """Id of a user."""
    flag_text: Mapped[str] = mapped_column(Text, default=_flag_text)
    """Messages of the report's flags in English, one a line, for searching."""
    flag_messages: Mapped[list[Any]] = mapped_column(default=_flag_messages)
    """Coded messages of the report's flags, for lists that read no reports."""
    criterion_points: Mapped[dict[str, Any]] = mapped_column(default=_criterion_points)
    """Criterion -> points with people's changes; null where it could not be judged."""
    # what waits for a person or for its release, whatever has ever been graded
    __table_args__ = (
        Index("grades_to_review", "round_id", "held", **TO_REVIEW),
        Index("grades_not_released", "submission_id", **NOT_RELEASED),
    )
