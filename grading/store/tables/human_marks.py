"""Tables of marks that people gave before, without Grader."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Float, ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from grading.store.tables.base import Base


class MarkImport(Base):
    """A file of marks that people gave before; the same file with the same mapping is imported once."""

    __tablename__ = "mark_imports"
    id: Mapped[int] = mapped_column(primary_key=True)
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"))
    sha256: Mapped[str] = mapped_column(String(64))
    """Of the file and its mapping."""
    name: Mapped[str] = mapped_column(String(200))
    marks: Mapped[int]
    at: Mapped[datetime]
    __table_args__ = (UniqueConstraint("assignment_id", "sha256"),)


class HumanMark(Base):
    """The level that a person gave a criterion before, without Grader."""

    __tablename__ = "human_marks"
    id: Mapped[int] = mapped_column(primary_key=True)
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"))
    import_id: Mapped[int] = mapped_column(ForeignKey("mark_imports.id"), index=True)
    work: Mapped[str] = mapped_column(String(64))
    """Shared by the marks of one work: a digest, so that nobody is named whose work is not here."""
    submission_id: Mapped[str | None] = mapped_column(ForeignKey("submissions.id"), index=True)
    """The submission that was marked, where it is here."""
    student_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"), index=True)
    """Whose work it was, where they are known."""
    marker: Mapped[str] = mapped_column(String(80))
    """As the file names them."""
    criterion: Mapped[str] = mapped_column(String(80))
    level: Mapped[float] = mapped_column(Float)
    __table_args__ = (UniqueConstraint("assignment_id", "work", "criterion", "marker"),)
