"""Tables of reviewing: changes, marks, regrade requests, comments, examples, dry runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, Float, ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from grading.store.tables.base import Base, Id, new_id


class Change(Base):
    """One change of a grade by a person, with the value before; undone, never edited.

    `kind` and `target` are those of a `grading.domain.report_changes.Change`.
    """

    __tablename__ = "changes"
    id: Mapped[int] = mapped_column(primary_key=True)
    round_id: Mapped[str] = mapped_column(ForeignKey("rounds.id"))
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), index=True)
    kind: Mapped[str] = mapped_column(String(20))
    target: Mapped[str] = mapped_column(String(100), default="")
    value: Mapped[dict[str, Any]]
    before: Mapped[dict[str, Any]]
    reason: Mapped[str] = mapped_column(Text, default="")
    bulk: Mapped[str] = mapped_column(Id, default="")
    """Id shared by all changes that were made at once: of a curve, a group of answers, or a rubric item."""
    by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    at: Mapped[datetime]
    undone_at: Mapped[datetime | None]
    undone_by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    __table_args__ = (Index("changes_of_round", "round_id", "id"), Index("changes_of_bulk", "bulk"))


class Mark(Base):
    """The level that a person gives a criterion in second marking, beside the model's."""

    __tablename__ = "marks"
    id: Mapped[int] = mapped_column(primary_key=True)
    round_id: Mapped[str] = mapped_column(ForeignKey("rounds.id"))
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), index=True)
    criterion: Mapped[str] = mapped_column(String(80))
    level: Mapped[float] = mapped_column(Float)
    blind: Mapped[bool] = mapped_column(Boolean, default=False)
    """The marker had not seen the model's level."""
    by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    at: Mapped[datetime]
    __table_args__ = (UniqueConstraint("round_id", "criterion", "by"),)


class LevelView(Base):
    """A person of the staff who has seen the machine's levels of a submission, since when."""

    __tablename__ = "level_views"
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), primary_key=True, index=True)
    at: Mapped[datetime]


class RegradeRequest(Base):
    """A student's request for a regrade, and its outcome."""

    __tablename__ = "regrade_requests"
    id: Mapped[int] = mapped_column(primary_key=True)
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), index=True)
    round_id: Mapped[str] = mapped_column(ForeignKey("rounds.id"))
    student_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    course_id: Mapped[int] = mapped_column(ForeignKey("courses.id"))
    criterion: Mapped[str] = mapped_column(String(80), default="")
    """Empty: the whole grade."""
    reason: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(String(20), default="open")
    """open, accepted (changed or graded again), declined, withdrawn"""
    answer: Mapped[str] = mapped_column(Text, default="")
    answered_by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    created_at: Mapped[datetime]
    answered_at: Mapped[datetime | None]
    __table_args__ = (Index("regrade_requests_open", "course_id", "state", "created_at"),)


class SavedComment(Base):
    """A comment in a course's comment bank."""

    __tablename__ = "saved_comments"
    id: Mapped[int] = mapped_column(primary_key=True)
    course_id: Mapped[int] = mapped_column(ForeignKey("courses.id"), index=True)
    text: Mapped[str] = mapped_column(Text)
    by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    at: Mapped[datetime]


class RubricItem(Base):
    """One version of a rubric item: a reusable comment with points; immutable, the last one counts."""

    __tablename__ = "rubric_items"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str] = mapped_column(Id)
    """Shared by all versions of an item."""
    number: Mapped[int]
    """Of the version, from 1."""
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"))
    criterion: Mapped[str] = mapped_column(String(80))
    text: Mapped[str] = mapped_column(Text)
    points: Mapped[float] = mapped_column(Float)
    """Added to the criterion's points; negative: deducted."""
    active: Mapped[bool] = mapped_column(Boolean, default=True)
    """False: the item was deleted."""
    bulk: Mapped[str] = mapped_column(Id, default="")
    """Id shared with the changes of grades that this version made."""
    by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    at: Mapped[datetime]
    __table_args__ = (
        UniqueConstraint("item", "number"),
        Index("rubric_items_of_criterion", "assignment_id", "criterion"),
    )


class Example(Base):
    """A correction that an instructor chose as an example for later gradings of the same criterion.

    It quotes a student's work, so it is deleted with that student.
    """

    __tablename__ = "examples"
    id: Mapped[int] = mapped_column(primary_key=True)
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"), index=True)
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), index=True)
    criterion: Mapped[str] = mapped_column(String(80))
    excerpt: Mapped[str] = mapped_column(Text)
    """The student's text, without names."""
    model_level: Mapped[float | None] = mapped_column(Float)
    level: Mapped[float] = mapped_column(Float)
    """The level that a person gave."""
    reason: Mapped[str] = mapped_column(Text, default="")
    active: Mapped[bool] = mapped_column(Boolean, default=True)
    by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    at: Mapped[datetime]
    removed_at: Mapped[datetime | None]
    """A removed example keeps its text for a day, then its row alone is left."""


class DryRun(Base):
    """A dry run of a rubric change on submissions: rounds that are not current until it is applied."""

    __tablename__ = "dry_runs"
    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"), index=True)
    rubric_version_id: Mapped[int] = mapped_column(ForeignKey("rubric_versions.id"))
    purpose: Mapped[str] = mapped_column(String(20), default="rubric")
    """rubric, examples (their effect), try (before the class sees it)"""
    by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    created_at: Mapped[datetime]
    applied_at: Mapped[datetime | None]
    discarded_at: Mapped[datetime | None]


class DryRunRound(Base):
    """One submission of a dry run."""

    __tablename__ = "dry_run_rounds"
    dry_run_id: Mapped[str] = mapped_column(ForeignKey("dry_runs.id"), primary_key=True)
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), primary_key=True, index=True)
    round_id: Mapped[str] = mapped_column(ForeignKey("rounds.id"), index=True)
