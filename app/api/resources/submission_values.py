"""What the API takes and gives of hand-ins."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.api.fields import PRINTABLE, Line, Moment, Whole, Yes
from app.api.paging import Paged
from app.submissions.status import StageStatus
from grading.store.rounds.prompts import Missing
from grading.store.views.submission import Queue


class SubmissionForm(BaseModel):
    """The fields of a hand-in."""

    model_config = ConfigDict(extra="forbid")
    assignment: str = Field(max_length=130, pattern=PRINTABLE, description="`course/assignment`")
    student: str = Field(max_length=200, pattern=PRINTABLE, description="the student's id or sign-in name")
    priority: Literal["interactive", "batch"] = "interactive"


class SubmissionUpload(SubmissionForm):
    """A hand-in as multipart form."""

    files: list[bytes] = Field(min_length=1, description="scripts, notebooks, or one zip of them")


class SubmissionAccepted(BaseModel):
    """The hand-in is stored and will be graded."""

    id: str
    status: str
    status_url: str


class Timing(BaseModel):
    """When what happened, in UTC."""

    received_at: datetime
    prepared_at: datetime | None
    dispatched_at: datetime | None
    finished_at: datetime | None


class SubmissionStatus(BaseModel):
    """Where a submission stands. Score, flags and report are there once this caller may see them."""

    id: str
    status: str
    queue: Queue | None
    stages: dict[str, StageStatus]
    score: float | None
    max_score: float
    released: bool
    flags: list[dict[str, Any]]
    report: dict[str, Any] | None
    runs: dict[str, str] = Field(description="for staff: the run whose result counts, for each stage")
    timing: Timing


class SentMessages(BaseModel):
    """What the model of a run read; without the messages, `missing` says why."""

    run_id: str
    round_id: str
    round_number: int
    stage: str
    attempt: int
    state: str
    error: str | None
    accepted: bool
    finished_at: datetime | None
    provenance: dict[str, Any] | None
    system: str | None
    user: str | None
    sha256: str | None = Field(description="of system, a zero byte and user, as they are kept")
    intact: bool | None = Field(description="whether that is the provenance's prompt_hash")
    missing: Missing | None


class SubmissionFilter(Paged):
    """Which hand-ins a list shows."""

    course: Whole | None = Field(default=None, description="the course's number")
    assignment: Whole | None = Field(default=None, description="the assignment's number")
    student: Line | None = Field(default=None, description="the student's id or sign-in name")
    status: Literal["received", "queued", "running", "graded", "partial", "failed"] | None = None
    flagged: Yes | None = Field(default=None, description="whether a flag was raised that you may see")
    released: Yes | None = Field(default=None, description="whether its student sees the grade")
    since: Moment | None = Field(default=None, description="received at this moment or later")
    until: Moment | None = Field(default=None, description="received before this moment")


class SubmissionItem(BaseModel):
    """A hand-in in a list. Score and flags are there once this caller may see them."""

    id: str
    number: int = Field(description="the student's n-th for this assignment")
    course_id: int
    assignment_id: int
    assignment: str = Field(description="`course/assignment`")
    student_id: int
    student: str = Field(description="their id, as they sign in")
    name: str
    status: str
    received_at: datetime
    late: bool
    score: float | None
    max_score: float | None
    held: bool | None
    released: bool
    flags: list[str] | None


class SubmissionFile(BaseModel):
    """A file as it was handed in."""

    path: str
    size: int = Field(description="in bytes")
    sha256: str
    url: str = Field(description="where it can be had")


class SubmissionFiles(BaseModel):
    """All files of a hand-in."""

    items: list[SubmissionFile]
