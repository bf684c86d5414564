"""Table of second opinions: which rounds get one, and what came of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from grading.store.tables.base import Base


class SecondOpinion(Base):
    """A second opinion on one stage of a round; at most one for each. States: see `OpinionState`."""

    __tablename__ = "second_opinions"
    id: Mapped[int] = mapped_column(primary_key=True)
    round_id: Mapped[str] = mapped_column(ForeignKey("rounds.id"))
    """The round that is judged again."""
    stage: Mapped[str] = mapped_column(String(40))
    """Its stage that is judged again; empty where the round gets no second opinion."""
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), index=True)
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"))
    state: Mapped[str] = mapped_column(String(20))
    family: Mapped[str] = mapped_column(String(40), default="")
    """Of the model that judged first."""
    by_round: Mapped[str | None] = mapped_column(ForeignKey("rounds.id"), unique=True)
    """The round in which a machine judges again."""
    model: Mapped[str] = mapped_column(String(200), default="")
    """That judged again."""
    opinions: Mapped[list[Any]] = mapped_column(default=list)
    """The fields of a `grading.domain.second_opinions.CriterionOpinion` by criterion."""
    apart: Mapped[int] = mapped_column(default=0)
    """Criteria whose levels are apart."""
    created_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    __table_args__ = (
        UniqueConstraint("round_id", "stage"),
        Index("second_opinions_by_state", "state", "family", "id"),
        Index("second_opinions_of_assignment", "assignment_id", "state", "apart"),
    )
