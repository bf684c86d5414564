"""Tables of what a blind random sample proves: the sample, its submissions in their order, releases."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    false,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from grading.store.tables.base import Base, Id, new_id


class GuaranteeSample(Base):
    """A random sample of an assignment's submissions, and the target that it is to prove; one is open."""

    __tablename__ = "guarantee_samples"
    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"), index=True)
    share: Mapped[float] = mapped_column(Float)
    """Of released levels that may be wrong."""
    confidence: Mapped[float] = mapped_column(Float)
    tolerance: Mapped[int] = mapped_column(Integer)
    """Levels that a level may be off without being wrong."""
    together: Mapped[bool] = mapped_column(Boolean, server_default=false())
    """Whether the target is for the levels of all criteria together, and single levels are drawn."""
    calibration_id: Mapped[int | None] = mapped_column(ForeignKey("calibrations.id"))
    """Whose scores its submissions have."""
    rubric_version_id: Mapped[int] = mapped_column(ForeignKey("rubric_versions.id"))
    ground: Mapped[list[Any]]
    """The fields of each `grading.store.trust.grading_ground.Origin` that graded its submissions."""
    by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    at: Mapped[datetime]
    replaced_at: Mapped[datetime | None]
    """When another one was drawn."""
    __table_args__ = (
        Index(
            "one_open_guarantee_sample",
            "assignment_id",
            unique=True,
            sqlite_where=text("replaced_at is null"),
            postgresql_where=text("replaced_at is null"),
        ),
    )


class GuaranteeMember(Base):
    """A submission that a sample was drawn of, with its scores and levels of then."""

    __tablename__ = "guarantee_members"
    sample_id: Mapped[str] = mapped_column(ForeignKey("guarantee_samples.id"), primary_key=True)
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), primary_key=True, index=True)
    round_id: Mapped[str] = mapped_column(ForeignKey("rounds.id"))
    scores: Mapped[dict[str, Any]]
    """Criterion -> the predicted chance that its level is wrong."""
    levels: Mapped[dict[str, Any]]
    """Criterion -> the level that it was graded with."""


class GuaranteeDraw(Base):
    """A draw of a sample: the fields of `grading.statistics.release_guarantee.Draw` but for its keys."""

    __tablename__ = "guarantee_draws"
    sample_id: Mapped[str] = mapped_column(ForeignKey("guarantee_samples.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """From 1."""
    drawn: Mapped[int] = mapped_column(server_default="0")
    """Submissions (or levels) that were to be marked, those that were deleted since included."""
    limits: Mapped[list[Any]]
    seed: Mapped[int] = mapped_column(BigInteger)
    by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    at: Mapped[datetime]


class GuaranteeCandidate(Base):
    """A submission that may be released by a draw."""

    __tablename__ = "guarantee_candidates"
    sample_id: Mapped[str] = mapped_column(Id, primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), primary_key=True, index=True)
    place: Mapped[int]
    """The safest first."""
    known: Mapped[bool] = mapped_column(Boolean)
    """Marked before the draw."""
    turn: Mapped[int | None]
    """Its place in the random sample, which is marked in this order; the first one of its levels."""
    turns: Mapped[dict[str, Any] | None]
    """Where single levels are drawn: criterion -> the place of its level, or 0 if it was marked before."""
    __table_args__ = (
        ForeignKeyConstraint(
            ["sample_id", "number"], ["guarantee_draws.sample_id", "guarantee_draws.number"]
        ),
    )


class GuaranteeRelease(Base):
    """A release of grades that were proven by a sample; its grades have its moment as `released_at`."""

    __tablename__ = "guarantee_releases"
    id: Mapped[int] = mapped_column(primary_key=True)
    sample_id: Mapped[str] = mapped_column(ForeignKey("guarantee_samples.id"), index=True)
    count: Mapped[int]
    proven: Mapped[int]
    """Submissions that the guarantee is about."""
    marks: Mapped[int]
    """Submissions (or levels) of the sample that were marked."""
    threshold: Mapped[float] = mapped_column(Float)
    """Highest score of a proven submission."""
    by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    at: Mapped[datetime]
