"""The API's submissions: submit, list, status, files, prompts of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from flask import Response, request, url_for
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.orm import Session

from app.api.fields import PRINTABLE, Line, Moment, SubmissionId, Whole, Yes
from app.api.framework import in_use, key_of
from app.api.guards import anybody, of_submission
from app.api.paging import MOST, Page, Paged, cut, moment_and_id
from app.api.routes import Call, get, post
from app.reports.counting import superseded
from app.submissions import intake
from app.submissions.status_texts import StageStatus, progress, seen_by
from app.web import auth, grade_view_audit, parsing
from app.web.parsing import parse
from app.web.services import services
from grading.documents import SubmittedFiles, UploadedFile
from grading.domain.counting import Attempt
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
    "The assignment '%(assignment)s' does not exist. Write it as course/assignment.",
)
ONLY_OWN_WORK = define_message(
    "submissions_api.only_own_work",
    "You may submit only your own work, with a token that has the scope 'submit'.",
)
BATCH_ONLY_BY_STAFF = define_message(
    "submissions_api.batch_only_by_staff", "Only staff of the course may submit with priority 'batch'."
)


class SubmissionForm(BaseModel):
    """The fields of a submission."""

    model_config = ConfigDict(extra="forbid")
    assignment: str = Field(
        max_length=130, pattern=PRINTABLE, description="`course/assignment`", examples=["ba-2026/basket"]
    )
    student: str = Field(
        max_length=200, pattern=PRINTABLE, description="the student's ID or sign-in name", examples=["ada"]
    )
    priority: Literal["interactive", "batch"] = Field(
        default="interactive", description="`batch` has lower priority, for staff only"
    )


class SubmissionUpload(SubmissionForm):
    """A submission as multipart/form-data."""

    files: list[bytes] = Field(
        min_length=1, description="scripts, notebooks, or a ZIP file of them", examples=[["print(1)\\n"]]
    )


class SubmissionAccepted(BaseModel):
    """The submission is stored and will be graded."""

    id: str = Field(description="the ID", examples=["4f0c2d91"])
    status: str = Field(description="`received`", examples=["received"])
    status_url: str = Field(
        description="the URL to get the status", examples=["/api/v1/submissions/4f0c2d91"]
    )


class Timing(BaseModel):
    """The times of each step, in UTC."""

    received_at: datetime = Field(description="when it was stored")
    prepared_at: datetime | None = Field(description="when its checks finished")
    dispatched_at: datetime | None = Field(description="when its first stage was queued for a machine")
    finished_at: datetime | None = Field(description="when its grading finished")


SUPERSEDED = "the ID of the same student's submission that counts instead; `null` if this one counts"


class SubmissionStatus(BaseModel):
    """The status of a submission. Score, flags and report are included once you may see them."""

    id: str = Field(description="the ID", examples=["4f0c2d91"])
    status: str = Field(
        description="`received`, `queued`, `running`, `graded`, `partial` or `failed`", examples=["running"]
    )
    queue: Queue | None = Field(description="the position in the queue, while it is waiting or running")
    stages: dict[str, StageStatus] = Field(description="the status of each stage")
    score: float | None = Field(
        description="the points; `null` if you may not see them or the grade is not complete", examples=[41.5]
    )
    max_score: float = Field(
        description="the maximum points without bonus criteria; `score` can be higher", examples=[50.0]
    )
    released: bool = Field(description="whether the grade is released to the student", examples=[False])
    superseded_by: str | None = Field(description=SUPERSEDED, examples=["77aa03be"])
    flags: list[dict[str, Any]] = Field(description="flags for review", examples=[[]])
    report: dict[str, Any] | None = Field(
        description="the report; `null` if you may not see it",
        examples=[{"status": "graded", "points": 41.5, "max_points": 50.0}],
    )
    runs: dict[str, str] = Field(
        description="for staff: the run with the current result, for each stage",
        examples=[{"feedback": "91ab03c4"}],
    )
    timing: Timing = Field(description="the times of each step")


class SentMessages(BaseModel):
    """The prompt of a run. If the messages are missing, `missing` has the reason."""

    run_id: str = Field(description="the ID of the run", examples=["91ab03c4"])
    round_id: str = Field(description="the ID of the grading", examples=["7d3e8810"])
    round_number: int = Field(description="the number of the grading of this submission", examples=[1])
    stage: str = Field(description="the name of the stage", examples=["analysis"])
    attempt: int = Field(description="the number of the attempt of this stage", examples=[1])
    state: str = Field(description="`dispatched`, `done`, `failed`, `lost` or `duplicate`", examples=["done"])
    error: str | None = Field(
        description="why it failed; `null` if it did not", examples=["The engine did not answer."]
    )
    accepted: bool = Field(description="whether its result is used")
    finished_at: datetime | None = Field(description="when it ended")
    provenance: dict[str, Any] | None = Field(
        description="machine, model, tokens, sampling and timings",
        examples=[{"machine": "dgx-spark-1", "model": "qwen3-coder:30b"}],
    )
    system: str | None = Field(description="the system message", examples=["You grade homework."])
    user: str | None = Field(description="the user message", examples=["The work of student-1 …"])
    sha256: str | None = Field(
        description="the SHA-256 of the system message, a zero byte and the user message, as stored",
        examples=["06c1097efce0"],
    )
    intact: bool | None = Field(description="whether it equals `prompt_hash` of the provenance")
    missing: Missing | None = Field(description="why the messages are missing; `null` if they are there")


class SubmissionFilter(Paged):
    """Filters of the list."""

    id: Annotated[list[SubmissionId], Field(max_length=MOST)] = Field(
        default=[],
        description="only these IDs; repeat the parameter for each",
        examples=[["4f0c2d91", "77aa03be"]],
    )
    course: Whole | None = Field(default=None, description="the ID of the course")
    assignment: Whole | None = Field(default=None, description="the ID of the assignment")
    student: Line | None = Field(
        default=None, description="the student's ID or sign-in name", examples=["ada"]
    )
    status: Literal["received", "queued", "running", "graded", "partial", "failed"] | None = Field(
        default=None, description="the status"
    )
    flagged: Yes | None = Field(default=None, description="whether it has a flag that you may see")
    released: Yes | None = Field(default=None, description="whether the grade is released to the student")
    since: Moment | None = Field(default=None, description="received at or after this time")
    until: Moment | None = Field(default=None, description="received before this time")
    sort: Literal["newest", "oldest"] = Field(default="newest", description="the sort order")


class SubmissionItem(BaseModel):
    """A submission in a list. Score and flags are included once you may see them."""

    id: str = Field(description="the ID", examples=["4f0c2d91"])
    number: int = Field(
        description="the number of the submission of this student for this assignment", examples=[1]
    )
    course_id: int = Field(description="the ID of the course", examples=[3])
    assignment_id: int = Field(description="the ID of the assignment", examples=[12])
    assignment: str = Field(description="`course/assignment`", examples=["ba-2026/basket"])
    student_id: int = Field(description="the ID of the student's account", examples=[17])
    student: str = Field(description="the student's sign-in name", examples=["ada"])
    name: str = Field(description="the student's name", examples=["Ada Lovelace"])
    status: str = Field(
        description="`received`, `queued`, `running`, `graded`, `partial` or `failed`", examples=["graded"]
    )
    received_at: datetime = Field(description="when it was stored")
    late: bool = Field(description="whether it is late for this student", examples=[False])
    score: float | None = Field(
        description="the points; `null` if you may not see them or the grade is not complete", examples=[41.5]
    )
    max_score: float | None = Field(
        description="the maximum points without bonus criteria; `score` can be higher", examples=[50.0]
    )
    held: bool | None = Field(
        description="whether the grade is held for review; `null` as for `score`",
        examples=[False],
    )
    released: bool = Field(description="whether the grade is released to the student", examples=[True])
    superseded_by: str | None = Field(description=SUPERSEDED, examples=[None])
    flags: list[str] | None = Field(
        description="flags for review, as sentences; `null` as for `score`", examples=[[]]
    )


class SubmissionFile(BaseModel):
    """A submitted file."""

    path: str = Field(description="the path, as submitted", examples=["basket.py"])
    size: int = Field(description="the size in bytes", examples=[1042])
    sha256: str = Field(description="the SHA-256 of the content", examples=["06c1097efce0"])
    url: str = Field(
        description="the URL to download it", examples=["/api/v1/submissions/4f0c2d91/files/basket.py"]
    )


class SubmissionFiles(BaseModel):
    """All files of a submission."""

    items: list[SubmissionFile] = Field(description="the files")
    submitted_by: str | None = Field(
        description="the name of the person who submitted them, if that was not the student",
        examples=["Grace Hopper"],
    )


class WrongType(GraderError):
    """Send the submission as multipart/form-data with the fields assignment, student and files."""

    code = "wrong_content_type"
    status = 415
    default_message = define_message(
        "error.wrong_type",
        "Send the submission as multipart/form-data with the fields assignment, student and files.",
    )


class UnknownStudent(Forbidden):
    """Nobody in this course has this ID."""

    code = "student_unknown"
    default_message = define_message(
        "error.unknown_student",
        "Nobody in this course has this ID. Ask an instructor to add the student, or use an "
        "instructor's token.",
    )


@get("/submissions", anybody("read"))
def submissions(call: Call, query: SubmissionFilter) -> Page[SubmissionItem]:
    """List submissions by time: of courses where you are staff, and your own."""
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
        ids=tuple(query.id),
        oldest_first=query.sort == "oldest",
    )
    found = api_lists.list_submissions(call.session, wanted, moment_and_id(query), query.limit + 1)
    items, address = cut(call, query, found, lambda one: (one.created_at, one.id))
    names = roster.load_subjects(call.session, [one.student_id for one in items])
    instead = superseded(call.session, call.actor, [one.id for one in items])
    return Page(items=[_item(call.actor, one, names, instead) for one in items], next=address)


def _item(
    actor: Actor, one: SubmissionLine, names: Mapping[int, tuple[str, ...]], instead: Mapping[str, Attempt]
) -> SubmissionItem:
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
        superseded_by=instead[one.id].id if one.id in instead else None,
        flags=[flag.message for flag in one.flags] if sees else None,
    )


@post("/submissions", anybody("submit"), status=202, form=SubmissionUpload, errors=(404,), by_hand=True)
def submit(call: Call) -> SubmissionAccepted:
    """Submit files. With the same Idempotency-Key, repeated requests submit only once."""
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
    """Get the status of a submission, with its score and report once you may see them. Has an ETag."""
    view = submission.load_view(call.session, id)
    live = seen_by(call.actor, view, progress(call.session, view))
    report = auth.report_for(call.actor, view)
    grade = view.grade if report else None
    staff = may(call.actor, "prompt.see", auth.subject_of(view))
    instead = superseded(call.session, call.actor, [view.id]).get(view.id)
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
        superseded_by=instead.id if instead else None,
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
    """List the submitted files."""
    found = receipts.load_receipt(call.session, about.id)
    items = [
        SubmissionFile(**one.model_dump(), url=url_for("api.file", id=about.id, file_path=one.path))
        for one in found.files
    ]
    return SubmissionFiles(items=items, submitted_by=found.submitted_by or None)


@get(
    "/submissions/<id>/files/<path:file_path>",
    of_submission("submission.see"),
    file="application/octet-stream",
)
def file(call: Call, about: SubmissionView, file_path: str) -> Response:
    """Download a submitted file."""
    found = next((one for one in receipts.list_files(call.session, about.id) if one.path == file_path), None)
    if found is None:
        raise NotFound(NO_SUCH_FILE_OF_SUBMISSION)
    response = Response(blobs.load_blob(call.session, found.sha256), mimetype="application/octet-stream")
    response.headers.set("Content-Disposition", "attachment", filename=file_path.rpartition("/")[2])
    return response


@get("/submissions/<id>/runs/<run_id>/prompt", of_submission("prompt.see"))
def prompt(call: Call, about: SubmissionView, run_id: str) -> SentMessages:
    """Get the exact prompt of a run, or why it is not stored (staff only)."""
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
