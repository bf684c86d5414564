"""What changed, so that what was made of a whole class is made again."""

from __future__ import annotations

from sqlalchemy import BigInteger, Integer
from sqlalchemy.orm import Mapped, mapped_column

from grading.store.tables.base import Base


class Touch(Base):
    """A transaction changed something of an assignment; see `grading.store.change_tracking`.

    It has no foreign keys, as it outlives what was removed.
    """

    __tablename__ = "touches"
    course_id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    """0: of all courses."""
    assignment_id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    """0: of the course itself."""
    mark: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    """Drawn by lot for each transaction."""
