"""The HTTP API under /api/v1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

from flask import Response, current_app, jsonify, request, url_for
from flask_openapi3 import APIBlueprint, OpenAPI, Tag
from pydantic import BaseModel, ValidationError
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response as BaseResponse

from app import handin, who
from app.api_values import (
    Circuit,
    Machines,
    MachineStatus,
    Problem,
    RunPath,
    SentMessages,
    StageSpeed,
    SubmissionAccepted,
    SubmissionForm,
    SubmissionPath,
    SubmissionStatus,
    SubmissionUpload,
    TakenRun,
    Timing,
)
from app.errors import answer
from app.machines_seen import SeenMachine, look
from app.progress import progress
from app.services import services
from grading.documents import HandIn, UploadedFile
from grading.documents.files import shown
from grading.errors import Forbidden, GraderError, NotFound
from grading.may import Actor, Subject, may
from grading.store import accounts, assignments, prompts, tables, views
from grading.store.submissions import Idempotency, Incoming

T = TypeVar("T", bound=BaseModel)
PROBLEMS: dict[str | int, Any] = {
    str(status): Problem for status in (400, 401, 403, 404, 409, 413, 415, 422, 429, 503, 507)
}
api = APIBlueprint(
    "api",
    __name__,
    url_prefix="/api/v1",
    abp_security=[{"token": []}],
    abp_tags=[Tag(name="grading")],
)


@api.before_request
def authenticate() -> None:
    """Know the caller before anything of the request is parsed; only the description is public."""
    if request.endpoint != "api.description":
        who.bearer()


@api.post(
    "/submissions",
    responses={"202": SubmissionAccepted, **PROBLEMS},
    openapi_extensions={
        "requestBody": {
            "required": True,
            "content": {"multipart/form-data": {"schema": SubmissionUpload.model_json_schema()}},
        }
    },
)
def submit() -> tuple[Response, int]:
    """Hand in files. Repeat it with the same Idempotency-Key and nothing is handed in twice."""
    if request.mimetype not in ("multipart/form-data", "application/x-www-form-urlencoded"):
        raise WrongType
    form, caller = parse(SubmissionForm, request.form.to_dict()), who.bearer()
    with services().store.read() as session:
        _assignment(session, caller, form)
    files = handin.uploaded(request.files.getlist("files"))
    key, content = _idempotency(caller, form, files), handin.read(files)
    accepted = handin.accept(lambda session: _incoming(session, caller, form, content, key))
    url = url_for("api.status", id=accepted.submission_id)
    with services().store.read() as session:
        state = views.submission_view(session, accepted.submission_id).state
    body = SubmissionAccepted(id=accepted.submission_id, status=state, status_url=url)
    response = jsonify(body.model_dump(mode="json"))
    response.headers["Location"] = url
    return response, 202


@api.get("/submissions/<id>", responses={"200": SubmissionStatus, **PROBLEMS})
def status(path: SubmissionPath) -> Response:
    """Where a submission stands, with its score and report once you may see them. Has an ETag."""
    caller = who.bearer()
    with services().store.read() as session:
        view = views.submission_view(session, path.id)
        who.require_seen(caller, view)
        live = progress(session, view)
    report = who.report_for(caller, view)
    grade = view.grade if report else None
    staff = may(caller, "prompt.see", who.subject_of(view))
    body = SubmissionStatus(
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
    return tagged(body.model_dump(mode="json"))


@api.get("/submissions/<id>/runs/<run_id>/prompt", responses={"200": SentMessages, **PROBLEMS})
def prompt(path: RunPath) -> Response:
    """The exact messages a run's model was sent, or why they are not kept; for staff."""
    caller = who.bearer()
    with services().store.read() as session:
        view = views.submission_view(session, path.id)
        who.require_seen(caller, view)
        who.require(caller, "prompt.see", who.subject_of(view))
        run = prompts.run_prompt(session, path.id, path.run_id)
    sent = run.prompt
    known = run.model_dump(mode="json", exclude={"prompt"})
    body = SentMessages(
        **known,
        system=sent.system if sent else None,
        user=sent.user if sent else None,
        sha256=run.sha256 or None,
        intact=run.intact,
    )
    return jsonify(body.model_dump(mode="json"))


@api.get("/machines", responses={"200": Machines, **PROBLEMS})
def machines() -> Response:
    """The machines, their load and the queues; for staff."""
    who.require(who.bearer(), "machines.see")
    seen = look()
    warnings = [f"{one.message}: {one.remedy}." for one in seen.differences]
    states = [_machine(one) for one in seen.machines]
    body = Machines(
        machines=states,
        queues=None if seen.queues is None else dict(seen.queues),
        waiting=dict(seen.waiting),
        warnings=warnings,
    )
    return jsonify(body.model_dump(mode="json"))


def _machine(seen: SeenMachine) -> MachineStatus:
    state, how = seen.state, seen.condition
    return MachineStatus(
        name=state.name,
        role=state.role,
        alive=state.alive,
        slots=state.slots,
        busy=state.busy,
        guests=state.guests,
        beat_age_s=state.beat_age_s,
        stages={stage: dict(placement) for stage, placement in state.stages.items()},
        engines={engine: dict(counters) for engine, counters in state.engines.items()},
        limit=how.limit,
        reserved=how.reserved,
        joins_after_s=how.joins_after_s,
        speeds={one.stage: StageSpeed.model_validate(one, from_attributes=True) for one in how.speeds},
        loading_s=how.loading_s,
        circuits=[Circuit.model_validate(one, from_attributes=True) for one in how.circuits],
        takes=how.takes,
        why=how.why,
        notes=how.notes,
        last_runs=[TakenRun.model_validate(one, from_attributes=True) for one in seen.last],
    )


@api.get("/openapi.json", doc_ui=False)
def description() -> Response:
    """This description."""
    return jsonify(cast(OpenAPI, current_app).api_doc)


MESSAGES = {
    "string_pattern_mismatch": "must not be empty or hold control characters",
    "missing": "is missing",
    "string_too_long": "is too long",
    "string_type": "must be text",
    "list_type": "must be a list",
    "too_short": "must not be empty",
    "too_long": "has too many entries",
    "model_type": "must be an object with its own fields",
    "dict_type": "must be an object with its own fields",
    "extra_forbidden": "is not a field of this request",
}


def parse(model: type[T], data: dict[str, Any]) -> T:
    """Validate fields of a request; the error names the field."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _invalid_field(error) from None


def invalid(error: ValidationError) -> BaseResponse:
    """The answer when a path of the API has a part that is not allowed."""
    problem = _invalid_field(error)
    return answer(problem.status, problem.code, problem.message)


def _invalid_field(error: ValidationError) -> InvalidField:
    first = error.errors()[0]
    field = shown(".".join(str(part) for part in first["loc"])) if first["loc"] else "request"
    message = MESSAGES.get(first["type"], first["msg"])
    return InvalidField(f"{field}: {message}.")


class WrongType(GraderError):
    """Send the hand-in as multipart/form-data with the fields assignment, student and files."""

    code = "wrong_content_type"
    status = 415


class InvalidField(GraderError):
    """A field of the request is missing or has a value that is not allowed."""

    code = "field_invalid"
    status = 422


class UnknownStudent(Forbidden):
    """Nobody in this course has that id; ask an instructor to add them, or use an instructor's token."""

    code = "student_unknown"


def tagged(body: dict[str, Any]) -> Response:
    """JSON with an ETag; 304 without a body when the caller has it already."""
    response = jsonify(body)
    response.add_etag()
    response.headers["Cache-Control"] = "private, no-cache"
    response.make_conditional(request)
    return response


def _assignment(session: Session, caller: Actor, form: SubmissionForm) -> tables.Assignment:
    """The assignment, if the caller may hand in for this student. Raises NotFound or Forbidden."""
    assignment = assignments.find(session, form.assignment)
    course = Subject(assignment.course_id)
    if not who.knows_course(caller, assignment.course_id):
        raise NotFound(f"There is no assignment '{form.assignment}'; write it as course/assignment.")
    student = accounts.find_user(session, "local", form.student.strip())
    if may(caller, "submit.for_others", course):
        known = student is not None and assignment.course_id in accounts.roles(session, student.id)
        if not (known or may(caller, "submit.enrols", course)):
            raise UnknownStudent
        return assignment
    if student is None or not may(caller, "submit", Subject(assignment.course_id, student.id)):
        raise Forbidden("You may hand in only your own work, with a token that has the scope 'submit'.")
    if form.priority == "batch":
        raise Forbidden("Only staff of the course may hand in with priority 'batch'.")
    return assignment


def _idempotency(caller: Actor, form: SubmissionForm, files: Sequence[UploadedFile]) -> Idempotency | None:
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return None
    if not (0 < len(key) <= 200 and key.isprintable()):
        raise InvalidField("Idempotency-Key: 1 to 200 printable characters.")
    parts = (form.assignment, form.student, form.priority)
    return Idempotency(caller.name, key, handin.body_hash(parts, files))


def _incoming(
    session: Session, caller: Actor, form: SubmissionForm, content: HandIn, key: Idempotency | None
) -> Incoming:
    assignment = _assignment(session, caller, form)
    course = assignment.course_id
    return Incoming(
        assignment_id=assignment.id,
        student_id=accounts.find_or_create_student(session, "local", form.student, "", "", course).id,
        source="api",
        handin=content,
        priority=form.priority,
        submitted_by=caller.user_id,
        idempotency=key,
        trusted=handin.trusted(caller, course),
    )
