"""Tables of trust in machines: shadow runs, which count for nothing, golden submissions, alarms, trials."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from sqlalchemy import Boolean, Date, ForeignKey, Index, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from grading.domain.messages import Message
from grading.store.tables.base import Base, Id, new_id


class GoldenSubmission(Base):
    """A submission that every machine grades each night, as a person approved."""

    __tablename__ = "golden_submissions"
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), primary_key=True)
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"), index=True)
    by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    at: Mapped[datetime]


class ModelTrial(Base):
    """A model that grades a sample of marked submissions, beside the one that graded them."""

    __tablename__ = "model_trials"
    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"), index=True)
    stage: Mapped[str] = mapped_column(String(40))
    engine: Mapped[str] = mapped_column(String(40))
    model: Mapped[str] = mapped_column(String(200))
    machine: Mapped[str] = mapped_column(String(40), default="")
    """The only machine that grades; empty: all that have the model."""
    by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    created_at: Mapped[datetime]
    decision: Mapped[str] = mapped_column(String(20), default="")
    """`switched`, `refused` or `stopped`; empty while it is open."""
    decided_by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    decided_at: Mapped[datetime | None]


class ShadowRun(Base):
    """A run of a stage on work that is graded already, by an idle machine. It counts for nothing."""

    __tablename__ = "shadow_runs"
    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    trial_id: Mapped[str | None] = mapped_column(ForeignKey("model_trials.id"), index=True)
    """Of a trial; else of a night."""
    night: Mapped[date | None] = mapped_column(Date)
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"), index=True)
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), index=True)
    round_id: Mapped[str] = mapped_column(ForeignKey("rounds.id"), index=True)
    """The round whose documents and evidence it reads."""
    stage: Mapped[str] = mapped_column(String(40))
    repeat: Mapped[int] = mapped_column(Integer, default=0)
    machine: Mapped[str] = mapped_column(String(40), default="")
    """Who is to do it; empty: any that has the model."""
    engine: Mapped[str] = mapped_column(String(40), default="")
    model: Mapped[str] = mapped_column(String(200), default="")
    """What is to do it; empty: what does the stage on that machine."""
    state: Mapped[str] = mapped_column(String(20), default="waiting")
    """`waiting`, `sent`, `done` or `failed`."""
    tries: Mapped[int] = mapped_column(Integer, default=0)
    question: Mapped[str] = mapped_column(Id, default="")
    """Under which the machine leaves its answer."""
    until: Mapped[datetime | None]
    """When a run that was sent is given up."""
    job_hash: Mapped[str] = mapped_column(String(64), default="")
    """Of all that the machine was sent, without ids: only runs of the same are compared."""
    finished_at: Mapped[datetime | None]
    judged: Mapped[bool] = mapped_column(Boolean, default=False)
    """Compared with other runs."""
    outcome: Mapped[dict[str, Any] | None]
    """The fields of a `grading.domain.shadow_runs.ShadowOutcome`."""
    __table_args__ = (
        Index("shadow_runs_by_state", "state", "machine"),
        Index("shadow_runs_by_night", "night", "assignment_id", "stage"),
    )


class ParityAlarm(Base):
    """A machine that graded golden submissions otherwise than before, or than others."""

    __tablename__ = "parity_alarms"
    id: Mapped[int] = mapped_column(primary_key=True)
    night: Mapped[date] = mapped_column(Date)
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"), index=True)
    machine: Mapped[str] = mapped_column(String(40))
    stage: Mapped[str] = mapped_column(String(40))
    why: Mapped[list[Any]]
    """Messages, as JSON."""
    out: Mapped[bool] = mapped_column(Boolean)
    """The machine was taken out of the stage."""
    at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    __table_args__ = (Index("parity_alarms_by_machine", "machine", "stage", "ended_at"),)


class StageDrain(Base):
    """A stage that a machine does no more, while it does its others."""

    __tablename__ = "stage_drains"
    machine: Mapped[str] = mapped_column(String(40), primary_key=True)
    stage: Mapped[str] = mapped_column(String(40), primary_key=True)
    why: Mapped[Message] = mapped_column(default=Message())
    by: Mapped[str] = mapped_column(String(100))
    since: Mapped[datetime]
