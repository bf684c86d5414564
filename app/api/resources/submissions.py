"""The API's submissions: submit, list, status, files, prompts of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from flask import Response, request, url_for
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.orm import Session

from app.api.fields import PRINTABLE, Line, Moment, Whole, Yes
from app.api.framework import in_use, key_of
from app.api.guards import anybody, of_submission
from app.api.paging import Page, Paged, cut, moment_and_id
from app.api.routes import Call, get, post
from app.submissions import intake
from app.submissions.status_texts import StageStatus, progress
from app.web import auth, grade_view_audit, parsing
from app.web.parsing import parse
from app.web.services import services
from grading.documents import SubmittedFiles, UploadedFile
from grading.domain.errors import Forbidden, GraderError, NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Actor, Subject, may
from grading.domain.shared_messages import NO_SUCH_FILE_OF_SUBMISSION
from grading.store import blobs, tables
from grading.store.accounts import users
from grading.store.assignments import versions
from grading.store.courses import roster
from grading.store.idempotency_keys import Idempotency
from grading.store.rounds import prompts
from grading.store.rounds.prompts import Missing
from grading.store.submissions import receipts
from grading.store.submissions.intake import IncomingSubmission
from grading.store.views import api_lists, submission
from grading.store.views.submission import Queue, SubmissionView
from grading.store.views.submission_lists import SubmissionLine

NO_ASSIGNMENT_OF_NAME = define_message(
    "submissions_api.no_assignment_of_name",
    "There is no assignment '%(assignment)s'; write it as course/assignment.",
)
ONLY_OWN_WORK = define_message(
    "submissions_api.only_own_work",
    "You may hand in only your own work, with a token that has the scope 'submit'.",
)
BATCH_ONLY_BY_STAFF = define_message(
    "submissions_api.batch_only_by_staff", "Only staff of the course may hand in with priority 'batch'."
)


class SubmissionForm(BaseModel):
    """The fields of a submission."""

    model_config = ConfigDict(extra="forbid")
    assignment: str = Field(max_length=130, pattern=PRINTABLE, description="`course/assignment`")
    student: str = Field(max_length=200, pattern=PRINTABLE, description="the student's id or sign-in name")
    priority: Literal["interactive", "batch"] = "interactive"


class SubmissionUpload(SubmissionForm):
    """A submission as multipart form."""

    files: list[bytes] = Field(min_length=1, description="scripts, notebooks, or one zip of them")


class SubmissionAccepted(BaseModel):
    """The submission is stored and will be graded."""

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
    """Which submissions a list shows."""

    course: Whole | None = Field(default=None, description="the course's number")
    assignment: Whole | None = Field(default=None, description="the assignment's number")
    student: Line | None = Field(default=None, description="the student's id or sign-in name")
    status: Literal["received", "queued", "running", "graded", "partial", "failed"] | None = None
    flagged: Yes | None = Field(default=None, description="whether a flag was raised that you may see")
    released: Yes | None = Field(default=None, description="whether its student sees the grade")
    since: Moment | None = Field(default=None, description="received at this moment or later")
    until: Moment | None = Field(default=None, description="received before this moment")


class SubmissionItem(BaseModel):
    """A submission in a list. Score and flags are there once this caller may see them."""

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
    """A file as it was submitted."""

    path: str
    size: int = Field(description="in bytes")
    sha256: str
    url: str = Field(description="where it can be had")


class SubmissionFiles(BaseModel):
    """All files of a submission."""

    items: list[SubmissionFile]


class WrongType(GraderError):
    """Send the hand-in as multipart/form-data with the fields assignment, student and files."""

    code = "wrong_content_type"
    status = 415
    default_message = define_message(
        "error.wrong_type",
        "Send the hand-in as multipart/form-data with the fields assignment, student and files.",
    )


class UnknownStudent(Forbidden):
    """Nobody in this course has that id; ask an instructor to add them, or use an instructor's token."""

    code = "student_unknown"
    default_message = define_message(
        "error.unknown_student",
        "Nobody in this course has that id; ask an instructor to add them, or use an instructor's token.",
    )


@get("/submissions", anybody("read"))
def submissions(call: Call, query: SubmissionFilter) -> Page[SubmissionItem]:
    """Submissions, the newest first: of the courses you are staff of, and your own."""
    student = None
    if query.student is not None:
        user = users.find_user(call.session, "local", query.student.strip())
        student = user.id if user is not None else 0
    wanted = api_lists.SubmissionFilters(
        staff_of=call.actor.staff_courses,
        reader=call.actor.user_id,
        course_id=query.course,
        assignment_id=query.assignment,
        student_id=student,
        state=query.status,
        flagged=query.flagged,
        released=query.released,
        since=query.since,
        until=query.until,
    )
    found = api_lists.list_submissions(call.session, wanted, moment_and_id(query), query.limit + 1)
    items, address = cut(call, query, found, lambda one: (one.created_at, one.id))
    names = roster.load_subjects(call.session, [one.student_id for one in items])
    return Page(items=[_item(call.actor, one, names) for one in items], next=address)


def _item(actor: Actor, one: SubmissionLine, names: Mapping[int, tuple[str, ...]]) -> SubmissionItem:
    sees = may(actor, "score.see", Subject(one.course_id, one.student_id, one.released, one.members))
    return SubmissionItem(
        id=one.id,
        number=one.number,
        course_id=one.course_id,
        assignment_id=one.assignment_id,
        assignment=f"{one.course}/{one.assignment}",
        student_id=one.student_id,
        student=names.get(one.student_id, ("",))[0],
        name=one.student,
        status=one.state,
        received_at=one.created_at,
        late=one.lateness.days > 0,
        score=one.points if sees else None,
        max_score=one.max_points,
        held=bool(one.held) if sees else None,
        released=one.released,
        flags=[flag.message for flag in one.flags] if sees else None,
    )


@post("/submissions", anybody("submit"), status=202, form=SubmissionUpload, errors=(404,), by_hand=True)
def submit(call: Call) -> SubmissionAccepted:
    """Submit files. Repeat it with the same Idempotency-Key and nothing is submitted twice."""
    if request.mimetype not in ("multipart/form-data", "application/x-www-form-urlencoded"):
        raise WrongType
    form = parse(SubmissionForm, request.form.to_dict())
    with services().store.read() as session:
        _assignment(session, call.actor, form)
    files = parsing.uploaded(request.files.getlist("files"))
    key, content = _key(call.actor, form, files), intake.read(files)
    with in_use(key):
        accepted = intake.accept(lambda session: _incoming(session, call.actor, form, content, key))
    url = call.headers["Location"] = url_for("api.status", id=accepted.submission_id)
    return SubmissionAccepted(id=accepted.submission_id, status="received", status_url=url)


@get("/submissions/<id>", of_submission("submission.see"))
def status(call: Call, id: str) -> SubmissionStatus:
    """Where a submission stands, with its score and report once you may see them. Has an ETag."""
    view = submission.load_view(call.session, id)
    live, report = progress(call.session, view), auth.report_for(call.actor, view)
    grade = view.grade if report else None
    staff = may(call.actor, "prompt.see", auth.subject_of(view))
    if report is not None:
        grade_view_audit.viewed(call.actor, view.id, "api")
    return SubmissionStatus(
        id=view.id,
        status=view.state,
        queue=live.queue,
        stages=live.stages,
        score=grade.final_points if grade else None,
        max_score=view.max_points,
        released=view.released,
        flags=[flag.model_dump(mode="json") for flag in report.flags] if report else [],
        report=report.model_dump(mode="json") if report else None,
        runs={s.stage: s.accepted_run for s in view.stages if s.accepted_run} if staff else {},
        timing=Timing(
            received_at=view.created_at,
            prepared_at=view.prepared_at,
            dispatched_at=view.dispatched_at,
            finished_at=view.finished_at,
        ),
    )


@get("/submissions/<id>/files", of_submission("submission.see"))
def files(call: Call, about: SubmissionView) -> SubmissionFiles:
    """The files of a submission, as they came."""
    found = receipts.list_files(call.session, about.id)
    items = [
        SubmissionFile(**one.model_dump(), url=url_for("api.file", id=about.id, file_path=one.path))
        for one in found
    ]
    return SubmissionFiles(items=items)


@get(
    "/submissions/<id>/files/<path:file_path>",
    of_submission("submission.see"),
    file="application/octet-stream",
)
def file(call: Call, about: SubmissionView, file_path: str) -> Response:
    """One of the files of a submission, byte by byte."""
    found = next((one for one in receipts.list_files(call.session, about.id) if one.path == file_path), None)
    if found is None:
        raise NotFound(NO_SUCH_FILE_OF_SUBMISSION)
    response = Response(blobs.load_blob(call.session, found.sha256), mimetype="application/octet-stream")
    response.headers.set("Content-Disposition", "attachment", filename=file_path.rpartition("/")[2])
    return response


@get("/submissions/<id>/runs/<run_id>/prompt", of_submission("prompt.see"))
def prompt(call: Call, about: SubmissionView, run_id: str) -> SentMessages:
    """The exact messages a run's model was sent, or why they are not kept; for staff."""
    run = prompts.load_run_prompt(call.session, about.id, run_id)
    sent = run.prompt
    return SentMessages(
        **run.model_dump(mode="json", exclude={"prompt"}),
        system=sent.system if sent else None,
        user=sent.user if sent else None,
        sha256=run.sha256 or None,
        intact=run.intact,
    )


def _assignment(session: Session, caller: Actor, form: SubmissionForm) -> tables.Assignment:
    """The assignment, if the caller may submit for this student. Raises NotFound or Forbidden."""
    assignment = versions.find_by_name(session, form.assignment)
    course = Subject(assignment.course_id)
    if not auth.knows_course(caller, assignment.course_id):
        raise NotFound(NO_ASSIGNMENT_OF_NAME(assignment=form.assignment))
    student = users.find_user(session, "local", form.student.strip())
    if may(caller, "submit.for_others", course):
        enrolled = student is not None and assignment.course_id in users.roles(session, student.id)
        if not (enrolled or may(caller, "submit.enrols", course)):
            raise UnknownStudent
        return assignment
    if student is None or not may(caller, "submit", Subject(assignment.course_id, student.id)):
        raise Forbidden(ONLY_OWN_WORK)
    if form.priority == "batch":
        raise Forbidden(BATCH_ONLY_BY_STAFF)
    return assignment


def _key(caller: Actor, form: SubmissionForm, sent: Sequence[UploadedFile]) -> Idempotency | None:
    # not the body as it was sent: programs draw the border between its parts anew each time
    return key_of(caller, intake.body_hash((form.assignment, form.student, form.priority), sent))


def _incoming(
    session: Session, caller: Actor, form: SubmissionForm, content: SubmittedFiles, key: Idempotency | None
) -> IncomingSubmission:
    assignment = _assignment(session, caller, form)
    course = assignment.course_id
    return IncomingSubmission(
        assignment_id=assignment.id,
        student_id=users.find_or_create_student(session, "local", form.student, "", "", course).id,
        source="api",
        content=content,
        priority=form.priority,
        submitted_by=caller.user_id,
        idempotency=key,
        trusted=parsing.trusted(caller, course),
    )
