"""Markers of changes, which validate caches about a whole class."""

from __future__ import annotations

from sqlalchemy import BigInteger, Integer
from sqlalchemy.orm import Mapped, mapped_column

from grading.store.tables.base import Base


class ChangeMarker(Base):
    """A change of something of an assignment; see `grading.store.change_tracking`.

    It has no foreign keys, as it outlives deleted rows.
    """

    __tablename__ = "change_markers"
    course_id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    """0: all courses."""
    assignment_id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    """0: the course itself."""
    value: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    """Random, the same in all rows of a transaction."""
