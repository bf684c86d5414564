"""Tables of trust in grades: calibrations of the chance that a level is wrong."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from grading.store.tables.base import Base


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
