"""Tables of trust in grades: calibrations of the chance that a level is wrong, questions to instructors."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from grading.store.tables.base import Base, Id


class Calibration(Base):
    """Weights of the chance that a level is wrong, fitted on a course's marks; immutable."""

    __tablename__ = "calibrations"
    id: Mapped[int] = mapped_column(primary_key=True)
    course_id: Mapped[int] = mapped_column(ForeignKey("courses.id"), index=True)
    features_version: Mapped[int]
    """`grading.statistics.confidence.FEATURES_VERSION` that they are for."""
    weights: Mapped[dict[str, Any]]
    marks: Mapped[int]
    """Levels by people that they were fitted on; 0: these are the default."""
    wrong: Mapped[int]
    """Of these: too far from the graded level."""
    at: Mapped[datetime]


class Question(Base):
    """What became of a question about a criterion; without a row it is open, in the template's words.

    The submissions it is about are found anew each time: see `grading.statistics.question_groups`.
    """

    __tablename__ = "questions"
    id: Mapped[int] = mapped_column(primary_key=True)
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"))
    criterion: Mapped[str] = mapped_column(String(80))
    cause: Mapped[str] = mapped_column(Id)
    """Key of the cause."""
    wording: Mapped[str] = mapped_column(Text, default="")
    """By a model; empty: the template's."""
    model: Mapped[str] = mapped_column(String(300), default="")
    """That worded it."""
    state: Mapped[str] = mapped_column(String(20), default="open")
    """open, answered, dismissed"""
    asked: Mapped[str] = mapped_column(Text, default="")
    """The question as it was read when it was answered or dismissed."""
    note: Mapped[str] = mapped_column(Text, default="")
    """The answer, as the rubric has it."""
    version: Mapped[int | None]
    """Number of the draft that has the answer."""
    by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    at: Mapped[datetime | None]
    __table_args__ = (UniqueConstraint("assignment_id", "criterion", "cause"),)
