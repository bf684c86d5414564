"""What the list of hand-ins under review may show, and its lines, as values."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from grading.domain.value import Value

Look = Literal["", "held", "flagged", "unreviewed", "reviewed", "changed", "regrade"]
Sort = Literal["name", "-name", "new", "old", "points", "-points", "todo", "criterion"]


class Filters(Value):
    """What the list shows; the defaults show the hand-in of each student that counts."""

    everything: bool = False
    """All hand-ins, not only those that count."""
    q: str = Field(default="", max_length=200)
    """In the name or id of the student, or the words of the flags."""
    look: Look = ""
    released: Literal["", "yes", "no", "withdrawn"] = ""
    state: Literal["", "open", "graded", "partial", "failed"] = ""
    low: float | None = None
    high: float | None = None
    criterion: str = Field(default="", max_length=64, pattern=r"^([a-z0-9][a-z0-9_.-]*)?$")
    criterion_low: float | None = None
    criterion_high: float | None = None
    machine: str = Field(default="", max_length=40)
    model: str = Field(default="", max_length=200)
    late: bool = False
    sort: Sort = "name"


class Line(Value):
    """A hand-in in the list."""

    id: str
    number: int
    student: str
    student_id: int
    created_at: datetime
    state: str
    points: float | None
    points_so_far: float | None
    max_points: float | None
    held: bool
    released: bool
    withdrawn: bool
    reviewed: bool
    regrade: bool
    late: bool
    flags: tuple[str, ...]


class Page(Value):
    """One page of the list."""

    items: tuple[Line, ...]
    page: int
    pages: int
    total: int
    more: bool
    """There are more than `total`; they were not counted."""
    order: tuple[str, ...] = ()
    """The ids of the whole list, as far as they were counted, and one more."""
