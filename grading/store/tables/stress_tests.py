"""Tables of stress tests of a rubric: which variants of submissions were graded, and what they got."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from grading.store.tables.base import Base, Id, new_id


class StressTest(Base):
    """One stress test of a version of a rubric."""

    __tablename__ = "stress_tests"
    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"), index=True)
    rubric_version_id: Mapped[int] = mapped_column(ForeignKey("rubric_versions.id"))
    by: Mapped[int] = mapped_column(ForeignKey("users.id"))
    """Whose samples the variants are while they are graded."""
    seed: Mapped[int]
    generation: Mapped[int] = mapped_column(Integer, default=0)
    """0: the variants of the catalogue; then each time the worst were recombined."""
    created_at: Mapped[datetime]
    cancelled_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class StressVariant(Base):
    """A variant of a submission. Its text is kept only while it is graded; it can be made again."""

    __tablename__ = "stress_variants"
    id: Mapped[int] = mapped_column(primary_key=True)
    stress_test_id: Mapped[str] = mapped_column(ForeignKey("stress_tests.id"), index=True)
    source_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), index=True)
    """The student's submission that it is made of."""
    generation: Mapped[int] = mapped_column(Integer, default=0)
    key: Mapped[str] = mapped_column(String(400), default="")
    """See `grading.stress_tests.catalogue`; empty for a submission whose variants are not chosen yet."""
    family: Mapped[str] = mapped_column(String(40), default="")
    expects: Mapped[str] = mapped_column(String(20), default="")
    criterion: Mapped[str] = mapped_column(String(64), default="")
    variant_id: Mapped[str | None] = mapped_column(ForeignKey("submissions.id"), index=True)
    """The sample that is graded; nothing before and after."""
    round_id: Mapped[str | None] = mapped_column(ForeignKey("rounds.id"), index=True)
    ended: Mapped[bool] = mapped_column(default=False)
    outcome: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Points by criterion and in all, whether it is held, the codes of its flags; empty without a grade."""
