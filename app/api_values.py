"""What the API takes and gives; the OpenAPI document is made from these."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.progress import StageStatus
from grading.store.prompts import Missing
from grading.store.views import Queue

PRINTABLE = r"^[^\x00-\x1f\x7f]+$"


class SubmissionForm(BaseModel):
    """The fields of a hand-in."""

    model_config = ConfigDict(extra="forbid")
    assignment: str = Field(max_length=130, pattern=PRINTABLE, description="`course/assignment`")
    student: str = Field(max_length=200, pattern=PRINTABLE, description="the student's id or sign-in name")
    priority: Literal["interactive", "batch"] = "interactive"


class SubmissionUpload(SubmissionForm):
    """A hand-in as multipart form."""

    files: list[bytes] = Field(min_length=1, description="scripts, notebooks, or one zip of them")


class SubmissionPath(BaseModel):
    """Names a submission."""

    id: str = Field(max_length=64)


class RunPath(SubmissionPath):
    """Names a run of a submission."""

    run_id: str = Field(max_length=64)


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


class StageSpeed(BaseModel):
    """How fast a machine does a stage, as it measured itself."""

    jobs_per_hour: float = Field(description="with as many at once as it takes now, as fast as it is now")
    alone_s: float = Field(description="seconds of a job by itself, at usual speed")
    full_s: float = Field(description="seconds of a job among `full` at once")
    full: int
    health: float = Field(description="speed of the last half minute over what is usual there")
    tokens: float = Field(description="written for a usual job; 0 where that is not known")
    measured: bool = Field(description="false for a first guess")


class Circuit(BaseModel):
    """An engine that gets no work for now."""

    engine: str
    state: Literal["open", "probing"]
    why: str
    stages: tuple[str, ...]
    since_s: float | None


class TakenRun(BaseModel):
    """A run that ended."""

    stage: str
    state: str
    error: str
    seconds: float | None
    tokens: int | None
    ago_s: float


class MachineStatus(BaseModel):
    """A machine, how busy it is, how fast, and what it takes and why."""

    name: str
    role: str
    alive: bool
    slots: int
    busy: int
    guests: int = Field(description="slots that requests by the gateway have, beside those that are busy")
    beat_age_s: float | None
    stages: dict[str, dict[str, str]] = Field(
        description="engine, model, and where it is known the digest of the weights"
    )
    engines: dict[str, dict[str, float]] = Field(description="what each engine counts since its start")
    limit: int = Field(description="generations at once that it takes now, as it measured to be best")
    reserved: str = Field(description="`batch`, `testing` or empty")
    joins_after_s: float = Field(description="a spare joins when work has waited for so long")
    speeds: dict[str, StageSpeed] = Field(description="of each stage that it measured")
    loading_s: dict[str, float] = Field(description="stages whose model is not loaded: how long that takes")
    circuits: list[Circuit] = Field(description="engines that get no work for now, and why")
    takes: tuple[str, ...] = Field(description="queues it listens to now")
    why: str = Field(description="why these")
    notes: tuple[str, ...] = Field(description="what is out of the ordinary, in sentences")
    last_runs: list[TakenRun] = Field(description="what it did last, the newest first")


class Machines(BaseModel):
    """All machines and the queue lengths (nothing while Redis is away)."""

    machines: list[MachineStatus]
    queues: dict[str, int] | None
    waiting: dict[str, int] = Field(description="hand-ins in the database that were not sent, by priority")
    warnings: list[str] = Field(description="models that live machines have with different weights")


class Problem(BaseModel):
    """Problem details (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
