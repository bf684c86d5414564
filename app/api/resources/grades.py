"""The API's grades: results, people's changes, releasing, withdrawing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field
from sqlalchemy.orm import Session

from app.api.etags import Changed
from app.api.fields import MOST_NUMBER, Reason, RequestModel, SubmissionId, Text, Whole, whole
from app.api.guards import of_assignment, of_submission
from app.api.paging import Page, Paged, cut, number
from app.api.routes import Call, delete, get, post
from app.web import auth, grade_view_audit
from grading.checks.visibility import for_student
from grading.domain import report_changes as values
from grading.domain.errors import GraderError, NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import may
from grading.domain.report import Adjusted, CriterionGrade
from grading.domain.report_changes import Kind
from grading.store import tables
from grading.store.grades import change_history
from grading.store.grades import release as grade_release
from grading.store.review import edits
from grading.store.review.edits import TOTAL, ChangedMeanwhile
from grading.store.views import api_lists
from grading.store.views.gradebook import Row
from grading.store.views.submission import SubmissionView

NO_VISIBLE_RESULT = define_message("grades_api.no_visible_result", "No result is available to you yet.")

Points = Annotated[float, Field(ge=-10_000, le=10_000, allow_inf_nan=False)]
Target = Annotated[str, Field(max_length=100, pattern=r"^[^\x00]*$")]
ONE = "/submissions/<id>"
ASSIGNMENT = "/assignments/<int:assignment_id>"


class CriterionResult(BaseModel):
    """A criterion as it counts, and as it was before anybody changed it."""

    criterion: str = Field(description="its id in the rubric", examples=["load"])
    title: str = Field(description="its title in the rubric", examples=["Loads the data"])
    stage: str = Field(description="the stage that grades it", examples=["analysis"])
    points: float | None = Field(description="what counts; `null` while it is ungraded", examples=[3.5])
    max_points: float = Field(description="how many points it has", examples=[4.0])
    bonus: bool = Field(description="its points come on top of `max_score`", examples=[False])
    reason: str = Field(
        description="why it has these points, as it counts", examples=["Both files are read."]
    )
    changed: bool = Field(description="whether a person changed its points or its reason", examples=[True])
    original_points: float | None = Field(
        description="the points before anybody changed them", examples=[3.0]
    )
    original_reason: str = Field(
        description="the reason before anybody changed it", examples=["One file is read."]
    )
    changed_because: str = Field(
        description="what the person who changed it gave as the reason",
        examples=["The second file is read, too."],
    )


class AdjustmentResult(BaseModel):
    """A deduction or cap of the rubric as it counts."""

    adjustment: str = Field(description="its id in the rubric", examples=["no-plot"])
    title: str = Field(description="its title in the rubric", examples=["No plot"])
    criteria: list[str] = Field(
        description="ids of the criteria it concerns; empty: the whole", examples=[[]]
    )
    applies: bool = Field(description="whether it takes points", examples=[True])
    undecided: bool = Field(description="a check could not be run, and it might take more", examples=[False])
    points: float = Field(description="what it takes of the points; never negative", examples=[1.0])
    changed: bool = Field(description="a person waived or applied it", examples=[False])
    original_points: float = Field(
        description="what it took before anybody waived or applied it", examples=[1.0]
    )
    changed_because: str = Field(
        description="what the person who changed it gave as the reason", examples=[""]
    )


class Result(BaseModel):
    """What a submission came to."""

    submission: str = Field(description="the id of the submission", examples=["4f0c2d91"])
    status: str = Field(description="`graded`, `partial` or `failed`", examples=["graded"])
    score: float | None = Field(
        description="what counts; `null` while a criterion is ungraded", examples=[41.5]
    )
    points: float | None = Field(
        description="of the rubric, with its deductions and bonus, before adjustment and lateness",
        examples=[41.5],
    )
    adjustment: float = Field(description="what people and curves added or took off", examples=[0.0])
    credit: float = Field(description="the part of the points that a late submission keeps", examples=[1.0])
    max_score: float = Field(description="without bonus criteria: `score` may be more", examples=[50.0])
    held: bool = Field(description="kept from release until a person looks at it", examples=[False])
    released_at: datetime | None = Field(
        description="when the student could see it; `null` while they cannot"
    )
    reviewed_at: datetime | None = Field(
        description="when a person said that they agree; `null` where nobody did"
    )
    criteria: list[CriterionResult] = Field(description="each criterion, in the order of the rubric")
    adjustments: list[AdjustmentResult] = Field(
        description="deductions and caps of the rubric; points = criteria − these, and bonus up to its limit"
    )
    flags: list[str] = Field(
        description="what a person must look at, in sentences",
        examples=[["The notebook was not run from top to bottom."]],
    )


class ChangeWanted(RequestModel):
    """A change of a result by a person; the original is kept."""

    kind: Kind = Field(
        description="`points` or `reason` of a criterion, `remark` or `hide` of a remark, `text` of a part, "
        "`add` a comment, `adjust` the total, `waive` or `apply` a deduction or cap of the rubric",
        examples=["points"],
    )
    target: Target = Field(
        default="",
        description="id of a criterion or adjustment; `finding:2`, `suggestion:0`; `feedback.achieved` …",
        examples=["load"],
    )
    points: Points | None = Field(
        default=None,
        description="for `points`, the points of the criterion; for `adjust`, what is added to the total",
        examples=[3.5],
    )
    text: Text = Field(default="", description="for `reason`, `remark`, `text` and `add`, the new words")
    document: Annotated[str, Field(max_length=400, pattern=r"^[^\x00]*$")] = Field(
        default="", description="for `add`, the file that the comment is about"
    )
    cell: Annotated[int, Field(ge=0, le=MOST_NUMBER), BeforeValidator(whole)] | None = Field(
        default=None, description="for `add`, the cell of the notebook, as in the report"
    )
    line: Whole | None = Field(default=None, description="for `add`, the line of the file or the cell")
    reason: Reason = Field(
        default="",
        description="needed for `points`, `adjust`, `waive` and `apply`",
        examples=["The second file is read, too."],
    )


class ChangeMade(BaseModel):
    """It is saved. The ETag of this answer is that of the result now."""

    change: int = Field(description="its number, for taking it back", examples=[31])


class Change(BaseModel):
    """A change by a person, also one that was taken back."""

    id: int = Field(description="its number", examples=[31])
    at: datetime = Field(description="when it was made")
    by: str = Field(description="the name of who made it", examples=["Tom Tan"])
    kind: str = Field(description="what was changed, as in the request", examples=["points"])
    target: str = Field(description="what was changed, as in the request", examples=["load"])
    value: dict[str, Any] = Field(description="what counts since then", examples=[{"points": 3.5}])
    before: dict[str, Any] = Field(description="what counted before", examples=[{"points": 3.0}])
    reason: str = Field(description="why it was made", examples=["The second file is read, too."])
    undone_at: datetime | None = Field(description="when it was taken back; `null` where it counts")
    undone_by: str = Field(description="the name of who took it back; empty where it counts", examples=[""])


class Changes(BaseModel):
    """The changes of the grading that counts, the newest first, 200 at most."""

    items: list[Change] = Field(description="the changes")


class Accepted(BaseModel):
    """A person agreed."""

    released: bool = Field(description="whether that released the grade, too", examples=[False])


class Withdrawal(RequestModel):
    """Why."""

    reason: Reason = Field(
        default="", description="why; the student reads it", examples=["A mistake in the rubric"]
    )


class Some(RequestModel):
    """Of which submissions of the assignment: of these, or of all."""

    submissions: Annotated[list[SubmissionId], Field(min_length=1, max_length=5000)] | None = Field(
        default=None, description="ids of these submissions", examples=[["4f0c2d91", "77aa03be"]]
    )
    everything: bool = Field(default=False, description="of all, in place of `submissions`")


class SomeWithdrawn(Some):
    """Of which, and why."""

    reason: Reason = Field(
        default="", description="why; the students read it", examples=["A mistake in the rubric"]
    )


class Counted(BaseModel):
    """How many it was done to."""

    count: int = Field(description="how many", examples=[27])


class State(BaseModel):
    """Whether the student sees the grade now."""

    submission: str = Field(description="the id of the submission", examples=["4f0c2d91"])
    released: bool = Field(description="whether the student sees the grade")


class StudentGrade(BaseModel):
    """What counts of a student for an assignment."""

    student_id: int = Field(description="the student's number", examples=[17])
    student: str = Field(description="their id, as they sign in", examples=["ada"])
    name: str = Field(description="the student's name", examples=["Ada Lovelace"])
    state: str = Field(
        description="`graded`, `open`, `partial`, `failed`, `missing` (it was due) or `ahead`",
        examples=["graded"],
    )
    submission: str | None = Field(
        description="the id of the submission that counts; `null` where there is none", examples=["4f0c2d91"]
    )
    score: float | None = Field(description="what counts; `null` while it is not complete", examples=[41.5])
    max_score: float = Field(description="without bonus criteria: `score` may be more", examples=[50.0])
    credit: float = Field(description="the part of the points that a late submission keeps", examples=[1.0])
    adjustment: float = Field(description="what people and curves added or took off", examples=[0.0])
    held: bool = Field(
        description="whether it is kept from release until a person looks at it", examples=[False]
    )
    released: bool = Field(description="whether the student sees it", examples=[True])


class NothingNamed(GraderError):
    """List the submissions in `submissions`, or set `everything` to true."""

    code = "nothing_named"
    status = 422
    default_message = define_message(
        "error.nothing_named", "List the submissions in `submissions`, or set `everything` to true."
    )


@get(f"{ONE}/result", of_submission("submission.see"))
def result(call: Call, about: SubmissionView) -> Result:
    """What a submission came to, criterion by criterion. Its ETag is for changing it."""
    report, grade = auth.report_for(call.actor, about), about.grade
    if report is None or grade is None:
        raise NotFound(NO_VISIBLE_RESULT)
    grade_view_audit.viewed(call.actor, about.id, "api")
    staff = may(call.actor, "tests.see_all", auth.subject_of(about))
    before = grade.original if staff else for_student(grade.original)
    made = Result(
        submission=about.id,
        status=about.state,
        score=grade.final_points,
        points=grade.points,
        adjustment=grade.adjustment,
        credit=grade.credit,
        max_score=grade.max_points,
        held=grade.held,
        released_at=grade.released_at,
        reviewed_at=grade.reviewed_at,
        criteria=[_criterion(*pair) for pair in zip(report.criteria, before.criteria, strict=True)],
        adjustments=[_adjusted(*pair) for pair in zip(report.adjustments, before.adjustments, strict=True)],
        flags=[flag.message for flag in report.flags],
    )
    call.etag = _stamp(call.session, about)
    return made


@get(f"{ASSIGNMENT}/grades", of_assignment("class.see"))
def grades(call: Call, about: tables.Assignment, query: Paged) -> Page[StudentGrade]:
    """What counts of every student for an assignment, released or not; for staff."""
    found = api_lists.list_grades(call.session, about, number(query) or 0, query.limit + 1)
    items, address = cut(call, query, found, lambda one: (one.student.id,))
    return Page(items=[_of_student(one) for one in items], next=address)


@get(f"{ONE}/changes", of_submission("class.see"))
def changes(call: Call, about: SubmissionView) -> Changes:
    """What people changed of a result, also what was taken back; for staff."""
    made = change_history.history(call.session, about.round_id)
    call.etag = _stamp(call.session, about)
    items = [Change.model_validate(one.model_dump(include=set(Change.model_fields))) for one in made]
    return Changes(items=items)


@post(f"{ONE}/changes", of_submission("grade.change"), status=201, matches=True)
def make_change(call: Call, about: SubmissionView, body: ChangeWanted) -> ChangeMade:
    """Change points or words of a result, with a reason; the original is kept."""
    fields = body.model_dump() | ({"target": TOTAL} if body.kind == "adjust" else {})
    if body.kind == "add":
        fields["target"] = ""
    wanted, stamp = values.Change.model_validate(fields), call.match(_stamp(call.session, about))
    _in_time(lambda: edits.change_grade(call.session, about.id, wanted, stamp, call.actor))
    call.etag = _stamp(call.session, about)
    return ChangeMade(change=int(call.etag.split(".")[1]))


@delete(f"{ONE}/changes/<int:change_id>", of_submission("grade.change"), matches=True)
def undo_change(call: Call, about: SubmissionView, change_id: int) -> None:
    """Take a change back; what stood there before counts again."""
    stamp = call.match(_stamp(call.session, about))
    _in_time(lambda: edits.undo_change(call.session, about.id, change_id, stamp, call.actor))
    call.etag = _stamp(call.session, about)


@post(f"{ONE}/accept", of_submission("grade.change"), matches=True)
def accept(call: Call, about: SubmissionView) -> Accepted:
    """Say that a person looked at a result and agrees: it is held no longer."""
    stamp = call.match(_stamp(call.session, about))
    done: list[bool] = []
    _in_time(lambda: done.append(edits.accept_grade(call.session, about.id, stamp, call.actor)))
    return Accepted(released=done[0])


@post(f"{ONE}/release", of_submission("grade.release"))
def release(call: Call, about: SubmissionView) -> State:
    """Let the student see this grade, also a held one: a person decided."""
    grade_release.release_grade(call.session, about.round_id, call.actor)
    return State(submission=about.id, released=True)


@post(f"{ONE}/withdraw", of_submission("grade.release"))
def withdraw(call: Call, about: SubmissionView, body: Withdrawal) -> State:
    """Take a released grade back; the student sees that it was withdrawn."""
    grade_release.withdraw_grade(call.session, about.round_id, call.actor, body.reason.strip())
    return State(submission=about.id, released=False)


@post(f"{ASSIGNMENT}/release", of_assignment("grade.release"))
def release_some(call: Call, about: tables.Assignment, body: Some) -> Counted:
    """Release the grades of an assignment that are complete and not held: of all submissions, or of these."""
    return Counted(count=grade_release.release_all(call.session, about.id, call.actor, _named(body)))


@post(f"{ASSIGNMENT}/withdraw", of_assignment("grade.release"))
def withdraw_some(call: Call, about: tables.Assignment, body: SomeWithdrawn) -> Counted:
    """Take released grades of an assignment back: of all submissions, or of these."""
    named, reason = _named(body), body.reason.strip()
    count = grade_release.withdraw_all(call.session, about.id, call.actor, named, reason)
    return Counted(count=count)


def _named(body: Some) -> list[str] | None:
    """The submissions that were named; nothing means all. Raises NothingNamed."""
    if body.everything == (body.submissions is not None):
        raise NothingNamed
    return body.submissions


def _in_time(work: Callable[[], object]) -> None:
    """Do it, or raise Changed where somebody changed the grade since the caller looked at it."""
    try:
        work()
    except ChangedMeanwhile:
        raise Changed from None


def _stamp(session: Session, view: SubmissionView) -> str:
    return change_history.stamp(session, view.round_id)


def _criterion(one: CriterionGrade, before: CriterionGrade) -> CriterionResult:
    return CriterionResult(
        criterion=one.criterion,
        title=one.title,
        stage=one.stage,
        points=one.points,
        max_points=one.max_points,
        bonus=one.bonus,
        reason=one.reason,
        changed=one.corrected is not None,
        original_points=before.points,
        original_reason=before.reason,
        changed_because=one.corrected.reason if one.corrected is not None else "",
    )


def _adjusted(one: Adjusted, before: Adjusted) -> AdjustmentResult:
    return AdjustmentResult(
        adjustment=one.adjustment,
        title=one.title,
        criteria=list(one.criteria),
        applies=one.applies,
        undecided=one.undecided,
        points=one.points,
        changed=one.corrected is not None,
        original_points=before.points,
        changed_because=one.corrected.reason if one.corrected is not None else "",
    )


def _of_student(row: Row) -> StudentGrade:
    cell = row.cells[0]
    return StudentGrade(
        student_id=row.student.id,
        student=row.student.subject,
        name=row.student.name,
        submission=cell.submission_id or None,
        score=cell.points,
        max_score=cell.max_points,
        **{name: getattr(cell, name) for name in ("state", "credit", "adjustment", "held", "released")},
    )
