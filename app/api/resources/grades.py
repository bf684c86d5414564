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
    """A criterion with its current values, and its values before any change."""

    criterion: str = Field(description="the ID in the rubric", examples=["load"])
    title: str = Field(description="the title in the rubric", examples=["Loads the data"])
    stage: str = Field(description="the stage that grades it", examples=["analysis"])
    points: float | None = Field(
        description="the points; `null` while the criterion is not graded", examples=[3.5]
    )
    max_points: float = Field(description="the maximum points", examples=[4.0])
    bonus: bool = Field(description="whether its points are added to `max_score` (bonus)", examples=[False])
    reason: str = Field(description="the current reason for the points", examples=["Both files are read."])
    items: list[AppliedItem] = Field(
        description="the rubric items that apply; `points` includes their points"
    )
    changed: bool = Field(description="whether a person changed the points or the reason", examples=[True])
    original_points: float | None = Field(description="the points before any change", examples=[3.0])
    original_reason: str = Field(description="the reason before any change", examples=["One file is read."])
    changed_because: str = Field(
        description="the reason for the change",
        examples=["The second file is read, too."],
    )


class AppliedItem(BaseModel):
    """A rubric item that applies to a criterion."""

    item: str = Field(description="the ID of the rubric item", examples=["0b9e64cf8d5c4b1f9a3f6f9a0f3f1a57"])
    text: str = Field(description="the comment", examples=["The axes have no labels."])
    points: float = Field(description="the added points; negative: deducted", examples=[-0.5])


class AdjustmentResult(BaseModel):
    """A deduction or cap of the rubric with its current value."""

    adjustment: str = Field(description="the ID in the rubric", examples=["no-plot"])
    title: str = Field(description="the title in the rubric", examples=["No plot"])
    criteria: list[str] = Field(
        description="the IDs of the affected criteria; empty: all criteria", examples=[[]]
    )
    applies: bool = Field(description="whether it deducts points", examples=[True])
    undecided: bool = Field(
        description="whether a check could not run, so that it might deduct more", examples=[False]
    )
    points: float = Field(description="the deducted points; never negative", examples=[1.0])
    changed: bool = Field(description="whether a person waived or applied it", examples=[False])
    original_points: float = Field(description="the deducted points before any change", examples=[1.0])
    changed_because: str = Field(description="the reason for the change", examples=[""])


class Result(BaseModel):
    """The result of a submission."""

    submission: str = Field(description="the ID of the submission", examples=["4f0c2d91"])
    status: str = Field(description="`graded`, `partial` or `failed`", examples=["graded"])
    score: float | None = Field(
        description="the points; `null` while a criterion is not graded", examples=[41.5]
    )
    points: float | None = Field(
        description="the points with deductions and bonus, before the adjustment and the late penalty",
        examples=[41.5],
    )
    adjustment: float = Field(description="points added or deducted by people and curves", examples=[0.0])
    credit: float = Field(description="the share of the points after the late penalty", examples=[1.0])
    max_score: float = Field(
        description="the maximum points without bonus criteria; `score` can be higher", examples=[50.0]
    )
    held: bool = Field(description="whether the grade is held for review", examples=[False])
    released_at: datetime | None = Field(
        description="when the grade was released; `null` while it is not released"
    )
    reviewed_at: datetime | None = Field(
        description="when a person accepted the grade or graded its last criterion; `null` if nobody did"
    )
    criteria: list[CriterionResult] = Field(description="the criteria, in the order of the rubric")
    adjustments: list[AdjustmentResult] = Field(
        description="deductions and caps of the rubric; points = criteria − these, plus bonus up to its limit"
    )
    flags: list[str] = Field(
        description="flags for review, as sentences",
        examples=[["The notebook was not run from top to bottom."]],
    )


class ChangeWanted(RequestModel):
    """A change of a result. The original is kept."""

    kind: Kind = Field(
        description="`points` or `reason` of a criterion, `item` or `remove_item` to apply or remove a "
        "rubric item, `remark` or `hide` of a remark, `text` of a part, `add` a comment, `adjust` the total, "
        "`waive` or `apply` a deduction or cap of the rubric",
        examples=["points"],
    )
    target: Target = Field(
        default="",
        description="the ID of a criterion or adjustment; `finding:2`, `suggestion:0`, `feedback.achieved`; "
        "the IDs of a criterion and a rubric item, separated by a slash",
        examples=["load"],
    )
    points: Points | None = Field(
        default=None,
        description="for `points`: the points of the criterion; for `adjust`: the points added to the total",
        examples=[3.5],
    )
    text: Text = Field(default="", description="for `reason`, `remark`, `text` and `add`: the new text")
    document: Annotated[str, Field(max_length=400, pattern=r"^[^\x00]*$")] = Field(
        default="", description="for `add`: the file of the comment"
    )
    cell: Annotated[int, Field(ge=0, le=MOST_NUMBER), BeforeValidator(whole)] | None = Field(
        default=None, description="for `add`: the cell of the notebook, as in the report"
    )
    line: Whole | None = Field(default=None, description="for `add`: the line of the file or the cell")
    reason: Reason = Field(
        default="",
        description="the reason; required for `points`, `adjust`, `waive` and `apply`",
        examples=["The second file is read, too."],
    )


class ChangeMade(BaseModel):
    """The saved change. The ETag of the response is that of the changed result."""

    change: int = Field(description="the ID of the change, to undo it", examples=[31])


class Change(BaseModel):
    """A change by a person; it can be undone."""

    id: int = Field(description="the ID", examples=[31])
    at: datetime = Field(description="when it was made")
    by: str = Field(description="the name of the person who made it", examples=["Tom Tan"])
    kind: str = Field(description="what was changed, as in the request", examples=["points"])
    target: str = Field(description="what was changed, as in the request", examples=["load"])
    value: dict[str, Any] = Field(description="the new value", examples=[{"points": 3.5}])
    before: dict[str, Any] = Field(description="the previous value", examples=[{"points": 3.0}])
    reason: str = Field(description="the reason", examples=["The second file is read, too."])
    undone_at: datetime | None = Field(description="when it was undone; `null` if it was not")
    undone_by: str = Field(
        description="the name of the person who undid it; empty if nobody did", examples=[""]
    )


class Changes(BaseModel):
    """The changes of the current grading, newest first, at most 200."""

    items: list[Change] = Field(description="the changes")


class Accepted(BaseModel):
    """The accepted grade."""

    released: bool = Field(description="whether this also released the grade", examples=[False])


class Withdrawal(RequestModel):
    """The reason."""

    reason: Reason = Field(
        default="", description="the reason, visible to the student", examples=["A mistake in the rubric"]
    )


class Some(RequestModel):
    """The submissions of the assignment: these or all."""

    submissions: Annotated[list[SubmissionId], Field(min_length=1, max_length=5000)] | None = Field(
        default=None, description="the IDs of the submissions", examples=[["4f0c2d91", "77aa03be"]]
    )
    everything: bool = Field(default=False, description="all submissions, instead of `submissions`")


class SomeWithdrawn(Some):
    """The submissions and the reason."""

    reason: Reason = Field(
        default="", description="the reason, visible to the students", examples=["A mistake in the rubric"]
    )


class Counted(BaseModel):
    """The number of changed grades."""

    count: int = Field(description="the number of grades", examples=[27])


class State(BaseModel):
    """The release status of the grade."""

    submission: str = Field(description="the ID of the submission", examples=["4f0c2d91"])
    released: bool = Field(description="whether the grade is released to the student")


class StudentGrade(BaseModel):
    """The grade of a student for an assignment."""

    student_id: int = Field(description="the ID of the student's account", examples=[17])
    student: str = Field(description="the student's sign-in name", examples=["ada"])
    name: str = Field(description="the student's name", examples=["Ada Lovelace"])
    state: str = Field(
        description="`graded`, `open`, `partial`, `failed`, `missing` (past due) or `ahead` (not due yet)",
        examples=["graded"],
    )
    submission: str | None = Field(
        description="the ID of the submission that counts; `null` if there is none", examples=["4f0c2d91"]
    )
    score: float | None = Field(
        description="the points; `null` while the grade is not complete", examples=[41.5]
    )
    max_score: float = Field(
        description="the maximum points without bonus criteria; `score` can be higher", examples=[50.0]
    )
    credit: float = Field(description="the share of the points after the late penalty", examples=[1.0])
    adjustment: float = Field(description="points added or deducted by people and curves", examples=[0.0])
    held: bool = Field(description="whether the grade is held for review", examples=[False])
    released: bool = Field(description="whether the grade is released to the student", examples=[True])


class NothingNamed(GraderError):
    """List the submissions in `submissions`, or set `everything` to true."""

    code = "nothing_named"
    status = 422
    default_message = define_message(
        "error.nothing_named", "List the submissions in `submissions`, or set `everything` to true."
    )


@get(f"{ONE}/result", of_submission("submission.see"))
def result(call: Call, about: SubmissionView) -> Result:
    """Get the result of a submission with all criteria. Send its ETag to change it."""
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
    """List the grades of all students for an assignment, released or not (staff only)."""
    found = api_lists.list_grades(call.session, about, number(query) or 0, query.limit + 1)
    items, address = cut(call, query, found, lambda one: (one.student.id,))
    return Page(items=[_of_student(one) for one in items], next=address)


@get(f"{ONE}/changes", of_submission("class.see"))
def changes(call: Call, about: SubmissionView) -> Changes:
    """List the changes of a result, including undone ones (staff only)."""
    made = change_history.history(call.session, about.round_id)
    call.etag = _stamp(call.session, about)
    items = [Change.model_validate(one.model_dump(include=set(Change.model_fields))) for one in made]
    return Changes(items=items)


@post(f"{ONE}/changes", of_submission("grade.change"), status=201, matches=True)
def make_change(call: Call, about: SubmissionView, body: ChangeWanted) -> ChangeMade:
    """Change points or texts of a result, with a reason. The original is kept."""
    fields = body.model_dump() | ({"target": TOTAL} if body.kind == "adjust" else {})
    if body.kind == "add":
        fields["target"] = ""
    wanted, stamp = values.Change.model_validate(fields), call.match(_stamp(call.session, about))
    _in_time(lambda: edits.change_grade(call.session, about.id, wanted, stamp, call.actor))
    call.etag = _stamp(call.session, about)
    return ChangeMade(change=int(call.etag.split(".")[1]))


@delete(f"{ONE}/changes/<int:change_id>", of_submission("grade.change"), matches=True)
def undo_change(call: Call, about: SubmissionView, change_id: int) -> None:
    """Undo a change. The previous value is restored."""
    stamp = call.match(_stamp(call.session, about))
    _in_time(lambda: edits.undo_change(call.session, about.id, change_id, stamp, call.actor))
    call.etag = _stamp(call.session, about)


@post(f"{ONE}/accept", of_submission("grade.change"), matches=True)
def accept(call: Call, about: SubmissionView) -> Accepted:
    """Accept a result after review. It is no longer held."""
    stamp = call.match(_stamp(call.session, about))
    done: list[bool] = []
    _in_time(lambda: done.append(edits.accept_grade(call.session, about.id, stamp, call.actor)))
    return Accepted(released=done[0])


@post(f"{ONE}/release", of_submission("grade.release"))
def release(call: Call, about: SubmissionView) -> State:
    """Release a grade, even if it is held."""
    grade_release.release_grade(call.session, about.round_id, call.actor)
    return State(submission=about.id, released=True)


@post(f"{ONE}/withdraw", of_submission("grade.release"))
def withdraw(call: Call, about: SubmissionView, body: Withdrawal) -> State:
    """Withdraw a released grade. The student sees that it was withdrawn."""
    grade_release.withdraw_grade(call.session, about.round_id, call.actor, body.reason.strip())
    return State(submission=about.id, released=False)


@post(f"{ASSIGNMENT}/release", of_assignment("grade.release"))
def release_some(call: Call, about: tables.Assignment, body: Some) -> Counted:
    """Release the complete grades of an assignment that are not held: all, or those of these submissions."""
    return Counted(count=grade_release.release_all(call.session, about.id, call.actor, _named(body)))


@post(f"{ASSIGNMENT}/withdraw", of_assignment("grade.release"))
def withdraw_some(call: Call, about: tables.Assignment, body: SomeWithdrawn) -> Counted:
    """Withdraw released grades of an assignment: all, or those of these submissions."""
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
        items=[AppliedItem(item=i.item, text=i.text, points=i.points) for i in one.items],
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
