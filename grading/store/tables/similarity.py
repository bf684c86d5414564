"""Tables of similarity: answers as groups compare them, who left a group, comparisons and their pairs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Float, ForeignKey, Index, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from grading.store.tables.base import Base, Id


class Answer(Base):
    """The answer of a round's submission to a criterion, as groups of answers compare it."""

    __tablename__ = "answers"
    round_id: Mapped[str] = mapped_column(ForeignKey("rounds.id"), primary_key=True)
    criterion: Mapped[str] = mapped_column(String(80), primary_key=True)
    """Empty for the code of the whole work, as comparisons in pairs read it."""
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"))
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), index=True)
    key: Mapped[str] = mapped_column(Id)
    """Equal for equal answers; empty where nothing was written."""
    fingerprints: Mapped[bytes] = mapped_column(LargeBinary)
    """See `grading.similarity.fingerprints`."""
    outcome: Mapped[dict[str, Any]]
    """The fields of a `grading.similarity.Outcome`."""
    regions: Mapped[list[Any]]
    """The fields of `grading.similarity.Region`: where it stands in the submission."""
    __table_args__ = (Index("answers_of_criterion", "assignment_id", "criterion"),)


class SeparateAnswer(Base):
    """An answer that staff took out of its group."""

    __tablename__ = "separate_answers"
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), primary_key=True)
    criterion: Mapped[str] = mapped_column(String(80), primary_key=True)
    by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    at: Mapped[datetime]


class Comparison(Base):
    """The last comparison of an assignment's submissions in pairs."""

    __tablename__ = "comparisons"
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"), primary_key=True)
    compared_at: Mapped[datetime]
    works: Mapped[int]
    """Submissions of the assignment that were compared."""
    earlier: Mapped[int]
    """Submissions of other courses that they were compared with."""
    silent: Mapped[list[Any]]
    """Ids of submissions that are too short, or too much like most others."""


class SimilarPair(Base):
    """Two submissions of which a comparison found that they share more than their class does."""

    __tablename__ = "similar_pairs"
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"), primary_key=True)
    one_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), primary_key=True, index=True)
    other_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), primary_key=True, index=True)
    share: Mapped[float] = mapped_column(Float)
    """Of the smaller one's fingerprints that count."""
    fingerprints: Mapped[bytes] = mapped_column(LargeBinary)
    """Those that both have."""
