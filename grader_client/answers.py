"""What the API answers, as types. Answers may have more fields: later servers add some."""

from __future__ import annotations

from typing import Any, TypedDict


class Accepted(TypedDict):
    """A submission that is stored and will be graded."""

    id: str
    status: str
    status_url: str


class Submission(TypedDict):
    """Where a submission stands; score, flags and report once the token's owner may see them."""

    id: str
    status: str
    """`received`, `queued`, `running`, or in the end `graded`, `partial` or `failed`."""
    queue: dict[str, Any] | None
    stages: dict[str, dict[str, Any]]
    score: float | None
    max_score: float
    released: bool
    superseded_by: str | None
    flags: list[dict[str, Any]]
    report: dict[str, Any] | None
    runs: dict[str, str]
    timing: dict[str, str | None]


class SubmissionItem(TypedDict):
    """A submission in a list."""

    id: str
    number: int
    """The student's n-th for this assignment."""
    course_id: int
    assignment_id: int
    assignment: str
    student_id: int
    student: str
    """Their id, as they sign in."""
    name: str
    status: str
    received_at: str
    late: bool
    score: float | None
    max_score: float | None
    held: bool | None
    released: bool
    superseded_by: str | None
    flags: list[str] | None


class Result(TypedDict):
    """What a submission came to, criterion by criterion."""

    submission: str
    status: str
    score: float | None
    points: float | None
    adjustment: float
    credit: float
    max_score: float
    held: bool
    released_at: str | None
    reviewed_at: str | None
    criteria: list[dict[str, Any]]
    adjustments: list[dict[str, Any]]
    flags: list[str]


class Released(TypedDict):
    """Whether the student sees the grade now."""

    submission: str
    released: bool
