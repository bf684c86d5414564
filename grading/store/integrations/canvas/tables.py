"""A Canvas that is reached by its API: its courses and assignments, what was pulled, and what it was told."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Boolean, Float, ForeignKey, Index, Integer, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from grading.store.tables.base import Base


class CanvasCourse(Base):
    """A course of a Canvas, and the course here that it is."""

    __tablename__ = "canvas_courses"
    id: Mapped[int] = mapped_column(primary_key=True)
    connection: Mapped[str] = mapped_column(String(30))
    """Which Canvas, by its name in config.toml."""
    canvas_course: Mapped[str] = mapped_column(String(32))
    course_id: Mapped[int] = mapped_column(ForeignKey("courses.id"), index=True)
    title: Mapped[str] = mapped_column(String(200), default="")
    created_at: Mapped[datetime]
    created_by: Mapped[str] = mapped_column(String(100))
    pulled_at: Mapped[datetime | None]
    """When its people were last read."""
    error: Mapped[str] = mapped_column(String(500), default="")
    """Why that did not work the last time."""
    __table_args__ = (UniqueConstraint("connection", "canvas_course"),)


class CanvasLink(Base):
    """An assignment of a Canvas, and the assignment here that it is."""

    __tablename__ = "canvas_links"
    id: Mapped[int] = mapped_column(primary_key=True)
    canvas_course_id: Mapped[int] = mapped_column(ForeignKey("canvas_courses.id"))
    canvas_assignment: Mapped[str] = mapped_column(String(32))
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"), index=True)
    title: Mapped[str] = mapped_column(String(200), default="")
    points_possible: Mapped[float | None] = mapped_column(Float)
    """Of the assignment there, as it was last read."""
    pulled_at: Mapped[datetime | None]
    error: Mapped[str] = mapped_column(String(500), default="")
    compared_at: Mapped[datetime | None]
    compare_error: Mapped[str] = mapped_column(String(500), default="")
    ended_at: Mapped[datetime | None]
    """Nothing is pulled or told since then; what was pulled stays known."""
    __table_args__ = (UniqueConstraint("canvas_course_id", "canvas_assignment"),)


class CanvasAttempt(Base):
    """An attempt in Canvas that was pulled: the submission it became, or why it became none."""

    __tablename__ = "canvas_attempts"
    link_id: Mapped[int] = mapped_column(ForeignKey("canvas_links.id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    submission_id: Mapped[str | None] = mapped_column(ForeignKey("submissions.id"))
    late: Mapped[bool] = mapped_column(Boolean, default=False)
    """What Canvas says."""
    error: Mapped[str] = mapped_column(String(500), default="")
    at: Mapped[datetime]
    __table_args__ = (
        Index("canvas_attempts_of_user", "user_id"),
        Index("canvas_attempts_of_submission", "submission_id"),
    )


class CanvasScore(Base):
    """What Canvas was last told of a student, who is telling it now, and what Canvas has instead."""

    __tablename__ = "canvas_scores"
    link_id: Mapped[int] = mapped_column(ForeignKey("canvas_links.id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), primary_key=True)
    told: Mapped[str] = mapped_column(String(64), default="")
    """A digest of the points and the comment that it took last; empty: nothing yet."""
    points: Mapped[float | None] = mapped_column(Float)
    """What it took last, in its own points; nothing: none."""
    sent_at: Mapped[datetime | None]
    leased_until: Mapped[datetime | None]
    lease: Mapped[int] = mapped_column(Integer, default=0)
    """Tells one sender from the next."""
    error: Mapped[str] = mapped_column(String(500), default="")
    given_up: Mapped[bool] = mapped_column(Boolean, default=False)
    theirs: Mapped[float | None] = mapped_column(Float)
    """What Canvas has, where the last comparison found another score than ours."""
    differs_at: Mapped[datetime | None]
    __table_args__ = (Index("canvas_scores_of_user", "user_id"),)


class CanvasScoreAttempt(Base):
    """One try to tell Canvas a score; `posted` says that it had to be changed there."""

    __tablename__ = "canvas_score_attempts"
    id: Mapped[int] = mapped_column(primary_key=True)
    link_id: Mapped[int] = mapped_column(ForeignKey("canvas_links.id"))
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    at: Mapped[datetime]
    points: Mapped[float | None] = mapped_column(Float)
    posted: Mapped[bool] = mapped_column(Boolean, default=False)
    error: Mapped[str] = mapped_column(String(500), default="")
    __table_args__ = (
        Index("canvas_score_attempts_of_link", "link_id", "id"),
        Index("canvas_score_attempts_of_user", "user_id"),
    )
