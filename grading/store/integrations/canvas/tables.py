"""Tables of Canvas: linked courses and assignments, imported attempts, sent scores."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Boolean, Float, ForeignKey, Index, Integer, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from grading.store.tables.base import Base


class CanvasCourse(Base):
    """A course of a Canvas, linked to ours."""

    __tablename__ = "canvas_courses"
    id: Mapped[int] = mapped_column(primary_key=True)
    connection: Mapped[str] = mapped_column(String(30))
    """Name of the Canvas in config.toml."""
    canvas_course: Mapped[str] = mapped_column(String(32))
    course_id: Mapped[int] = mapped_column(ForeignKey("courses.id"), index=True)
    title: Mapped[str] = mapped_column(String(200), default="")
    created_at: Mapped[datetime]
    created_by: Mapped[str] = mapped_column(String(100))
    pulled_at: Mapped[datetime | None]
    """When its users were last read."""
    error: Mapped[str] = mapped_column(String(500), default="")
    """Why reading them failed the last time."""
    __table_args__ = (UniqueConstraint("connection", "canvas_course"),)


class CanvasLink(Base):
    """An assignment of a Canvas, linked to ours."""

    __tablename__ = "canvas_links"
    id: Mapped[int] = mapped_column(primary_key=True)
    canvas_course_id: Mapped[int] = mapped_column(ForeignKey("canvas_courses.id"))
    canvas_assignment: Mapped[str] = mapped_column(String(32))
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"), index=True)
    title: Mapped[str] = mapped_column(String(200), default="")
    points_possible: Mapped[float | None] = mapped_column(Float)
    """As last read from Canvas."""
    pulled_at: Mapped[datetime | None]
    """When the last pull began that came to its end."""
    listed_at: Mapped[datetime | None]
    """When the last of those began that asked for all submissions."""
    error: Mapped[str] = mapped_column(String(500), default="")
    compared_at: Mapped[datetime | None]
    compare_error: Mapped[str] = mapped_column(String(500), default="")
    ended_at: Mapped[datetime | None]
    """Since when the link is ended; imported attempts stay."""
    __table_args__ = (UniqueConstraint("canvas_course_id", "canvas_assignment"),)


class CanvasAttempt(Base):
    """An attempt in Canvas: the submission it became, or why it became none."""

    __tablename__ = "canvas_attempts"
    link_id: Mapped[int] = mapped_column(ForeignKey("canvas_links.id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    submission_id: Mapped[str | None] = mapped_column(ForeignKey("submissions.id"))
    late: Mapped[bool] = mapped_column(Boolean, default=False)
    """As Canvas says."""
    error: Mapped[str] = mapped_column(String(500), default="")
    at: Mapped[datetime]
    __table_args__ = (
        Index("canvas_attempts_of_user", "user_id"),
        Index("canvas_attempts_of_submission", "submission_id"),
    )


class CanvasScore(Base):
    """The score of a student in Canvas: what was sent last, the present lease, and what differs."""

    __tablename__ = "canvas_scores"
    link_id: Mapped[int] = mapped_column(ForeignKey("canvas_links.id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), primary_key=True)
    sent_digest: Mapped[str] = mapped_column(String(64), default="")
    """Digest of the points and comment that Canvas accepted last; empty: none."""
    points: Mapped[float | None] = mapped_column(Float)
    """Points that Canvas accepted last, in its own scale; None: no score."""
    sent_at: Mapped[datetime | None]
    leased_until: Mapped[datetime | None]
    lease: Mapped[int] = mapped_column(Integer, default=0)
    """Number of the lease, which tells one sender from the next."""
    error: Mapped[str] = mapped_column(String(500), default="")
    dead: Mapped[bool] = mapped_column(Boolean, default=False)
    theirs: Mapped[float | None] = mapped_column(Float)
    """Canvas' points, where the last comparison found a difference."""
    differs_at: Mapped[datetime | None]
    __table_args__ = (Index("canvas_scores_of_user", "user_id"),)


class CanvasScoreAttempt(Base):
    """An attempt to send a score to Canvas; `posted`: it had to be changed there."""

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
