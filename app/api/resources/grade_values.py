"""What the API takes and gives of results and what people do to them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field

from app.api.fields import MOST_NUMBER, Asked, Reason, SubmissionId, Text, Whole, whole
from grading.domain.changes import Kind

Points = Annotated[float, Field(ge=-10_000, le=10_000, allow_inf_nan=False)]
Target = Annotated[str, Field(max_length=100, pattern=r"^[^\x00]*$")]


class CriterionResult(BaseModel):
    """A criterion as it counts, and as it was before anybody changed it."""

    criterion: str
    title: str
    stage: str
    points: float | None
    max_points: float
    bonus: bool = Field(description="its points come on top of `max_score`")
    reason: str
    changed: bool
    original_points: float | None
    original_reason: str
    changed_because: str = Field(description="what the person who changed it gave as the reason")


class AdjustmentResult(BaseModel):
    """A deduction or cap of the rubric as it counts."""

    adjustment: str
    title: str
    criteria: list[str] = Field(description="ids of the criteria it concerns; empty: the whole")
    applies: bool
    undecided: bool = Field(description="a check could not be run, and it might take more")
    points: float = Field(description="what it takes of the points; never negative")
    changed: bool = Field(description="a person waived or applied it")
    original_points: float
    changed_because: str = Field(description="what the person who changed it gave as the reason")


class Result(BaseModel):
    """What a hand-in came to."""

    submission: str
    status: str
    score: float | None = Field(description="what counts; `null` while a criterion is ungraded")
    points: float | None = Field(
        description="of the rubric, with its deductions and bonus, before adjustment and lateness"
    )
    adjustment: float = Field(description="what people and curves added or took off")
    credit: float = Field(description="the part of the points that a late hand-in keeps")
    max_score: float = Field(description="without bonus criteria: `score` may be more")
    held: bool = Field(description="kept from release until a person looks at it")
    released_at: datetime | None
    reviewed_at: datetime | None
    criteria: list[CriterionResult]
    adjustments: list[AdjustmentResult] = Field(
        description="deductions and caps of the rubric; points = criteria − these, and bonus up to its limit"
    )
    flags: list[str]


class ChangeWanted(Asked):
    """A change of a result by a person; the original is kept."""

    kind: Kind = Field(
        description="`points` or `reason` of a criterion, `remark` or `hide` of a remark, `text` of a part, "
        "`add` a comment, `adjust` the total, `waive` or `apply` a deduction or cap of the rubric"
    )
    target: Target = Field(
        default="",
        description="id of a criterion or adjustment; `finding:2`, `suggestion:0`; `feedback.achieved` …",
    )
    points: Points | None = None
    text: Text = ""
    document: Annotated[str, Field(max_length=400, pattern=r"^[^\x00]*$")] = ""
    cell: Annotated[int, Field(ge=0, le=MOST_NUMBER), BeforeValidator(whole)] | None = None
    line: Whole | None = None
    reason: Reason = Field(default="", description="needed for `points`, `adjust`, `waive` and `apply`")


class ChangeMade(BaseModel):
    """It is saved. The ETag of this answer is that of the result now."""

    change: int


class Change(BaseModel):
    """A change by a person, also one that was taken back."""

    id: int
    at: datetime
    by: str
    kind: str
    target: str
    value: dict[str, Any]
    before: dict[str, Any]
    reason: str
    undone_at: datetime | None
    undone_by: str


class Changes(BaseModel):
    """The changes of the grading that counts, the newest first, 200 at most."""

    items: list[Change]


class Accepted(BaseModel):
    """A person agreed."""

    released: bool = Field(description="whether that released the grade, too")


class Withdrawal(Asked):
    """Why."""

    reason: Reason = ""


class Some(Asked):
    """Of which hand-ins of the assignment: of these, or of all."""

    submissions: Annotated[list[SubmissionId], Field(min_length=1, max_length=5000)] | None = None
    everything: bool = Field(default=False, description="of all, in place of `submissions`")


class SomeWithdrawn(Some):
    """Of which, and why."""

    reason: Reason = ""


class Counted(BaseModel):
    """How many it was done to."""

    count: int


class State(BaseModel):
    """Whether the student sees the grade now."""

    submission: str
    released: bool


class StudentGrade(BaseModel):
    """What counts of a student for an assignment."""

    student_id: int
    student: str = Field(description="their id, as they sign in")
    name: str
    state: str = Field(description="`graded`, `open`, `partial`, `failed`, `missing` (it was due) or `ahead`")
    submission: str | None
    score: float | None
    max_score: float
    credit: float
    adjustment: float
    held: bool
    released: bool
