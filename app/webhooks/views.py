"""Webhooks of learning systems (Standard Webhooks 1.0): verified before they are parsed, processed once."""

from __future__ import annotations

import base64
import binascii
import hashlib
import time
from collections.abc import Callable
from typing import Any, TypeVar

from flask import Blueprint, Response, jsonify, request
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session
from standardwebhooks import Webhook, WebhookVerificationError

from app.submissions import intake
from app.web import parsing
from app.web.parsing import InvalidField, parse
from app.web.security import without_token
from app.web.services import services
from grading.documents import SubmittedFiles, UploadedFile
from grading.domain.errors import Conflict, GraderError, NotFound, SignatureInvalid, UploadTooLarge
from grading.domain.messages import define_message
from grading.integrations import events
from grading.integrations.events import Assigned, File, Part, Roster, Submitted
from grading.integrations.http_client import OutsideFailed, Refused, TooMuch, ask
from grading.store import tables
from grading.store.accounts import users
from grading.store.assignments import versions
from grading.store.database import now
from grading.store.integrations import lms_rosters, webhooks
from grading.store.submissions.intake import IncomingSubmission

FILE_TOO_SLOW = define_message(
    "webhooks.file_too_slow",
    "data.files: %(name)s could not be downloaded in time. Send fewer files, or one ZIP file.",
)
FILE_SERVER_ANSWERED = define_message(
    "webhooks.file_server_answered",
    "data.files: %(name)s could not be downloaded: its server answered %(status)s.",
)
FILE_SERVER_REFUSED = define_message(
    "webhooks.file_server_refused",
    "data.files: %(name)s cannot be downloaded: its server answered %(status)s. Redirects are not followed.",
)
NO_SUCH_EVENT_TYPE = define_message(
    "webhooks.no_such_event_type", "Unknown message type. Supported types: %(kinds)s."
)
WEBHOOK_ID_FORM = define_message(
    "webhooks.webhook_id_form", "webhook-id: use at most 200 printable characters."
)
FILE_ADDRESS_REFUSED = define_message(
    "webhooks.file_address_refused", "data.files: the address of %(name)s is not allowed. %(why)s"
)
FILE_TOO_LARGE = define_message("webhooks.file_too_large", "data.files: %(name)s is refused: %(why)s.")
FILE_NOT_FETCHED = define_message(
    "webhooks.file_not_fetched", "data.files: %(name)s could not be downloaded: %(why)s."
)
BODY_FORM = define_message("webhooks.body_form", "body: send JSON with 'type' and 'data'.")
WEBHOOK_ID_USED = define_message(
    "webhooks.webhook_id_used", "This webhook-id was already used for another message. Send a new webhook-id."
)
COURSE_NOT_BOUND = define_message(
    "webhooks.course_not_bound",
    "The connection '%(connection)s' may not send for the course '%(course)s'. An "
    "administrator adds the course to server.lms_connections in config.toml.",
)
FILE_NOT_BASE64 = define_message(
    "webhooks.file_not_base64", "data.files: the content of %(name)s is not base64."
)

FETCH_S = 6.0
"""For all files of a message together."""
_LATER = (408, 425, 429)
endpoints = Blueprint("webhooks", __name__, url_prefix="/webhooks")
P = TypeVar("P", bound=Part)
LEAST_SECRET = 24
"""Bytes a signing secret must have."""
WITHIN_S = 10.0
"""What is not stored by then is not stored at all: who sent it has stopped waiting."""


class FileRefused(GraderError):
    """A file cannot be downloaded from the address in the message. Retrying does not help."""

    code = "file_refused"
    status = 422
    default_message = define_message(
        "error.file_refused",
        "A file cannot be downloaded from the address in the message. Retrying does not help.",
    )


class FileAway(GraderError):
    """A file could not be downloaded from the address in the message. Send the message again."""

    code = "file_away"
    status = 503
    default_message = define_message(
        "error.file_away",
        "A file could not be downloaded from the address in the message. Send the message again.",
    )


def fetch(file: File, until: float, most_bytes: int) -> bytes:
    """What is behind a file's address, by `until` of the monotonic clock. Raises FileRefused, FileAway."""
    name, left = file.name[:80], until - time.monotonic()
    if left <= 0:
        raise FileAway(FILE_TOO_SLOW(name=repr(name)))
    try:
        answer = ask(
            "GET",
            file.url or "",
            headers={"User-Agent": "Grader"},
            timeout_s=left,
            most_bytes=most_bytes,
            allow=services().config.server.allowed,
        )
    except Refused as error:
        raise FileRefused(FILE_ADDRESS_REFUSED(name=repr(name), why=error.coded)) from None
    except TooMuch as error:
        raise UploadTooLarge(FILE_TOO_LARGE(name=repr(name), why=error.coded)) from None
    except OutsideFailed as error:
        raise FileAway(FILE_NOT_FETCHED(name=repr(name), why=error.coded)) from None
    if answer.status in _LATER or answer.status >= 500:
        raise FileAway(FILE_SERVER_ANSWERED(name=repr(name), status=answer.status))
    if answer.status != 200:
        raise FileRefused(FILE_SERVER_REFUSED(name=repr(name), status=answer.status))
    return answer.body


without_token(endpoints)


class TooLate(GraderError):
    """The message could not be processed within 10 s, so nothing was stored. Send it again."""

    code = "too_late"
    status = 503
    default_message = define_message(
        "error.too_late",
        "The message could not be processed within 10 s, so nothing was stored. Send it again.",
    )


class CourseNotBound(GraderError):
    """This connection may not send for this course."""

    code = "course_not_bound"
    status = 403
    default_message = define_message(
        "error.course_not_bound",
        "This connection may not send for this course. An administrator adds the course to "
        "server.lms_connections in config.toml.",
    )


class Event(BaseModel):
    """A message; `data` is only read for types that are known."""

    model_config = ConfigDict(extra="ignore")
    type: str
    data: dict[str, Any] = Field(default_factory=dict)


@endpoints.get("/schemas/<kind>.json")
def schema(kind: str) -> Response:
    """The JSON schema of a type of messages, to Grader or from it, with examples."""
    found = events.schema(kind)
    if found is None:
        raise NotFound(NO_SUCH_EVENT_TYPE(kinds=tuple(events.kinds())))
    return jsonify(found)


@endpoints.post("/lms/<connection>")
def receive(connection: str) -> Response:
    """Take a message of a learning system; 2xx only after the commit."""
    body = request.get_data()
    until = time.monotonic() + WITHIN_S
    verify(connection, body)
    message_id, digest = request.headers["webhook-id"], hashlib.sha256(body).hexdigest()
    if not (message_id.isprintable() and len(message_id) <= 200):
        raise InvalidField(WEBHOOK_ID_FORM)
    message = Taking(connection, message_id, digest, until)
    with services().store.read() as session:
        before = message.before(session)
    if before is not None:
        return jsonify(before)
    event = parse_event(body)
    take = KINDS.get(event.type)
    return jsonify(take(message, event.data) if take is not None else {"status": "ignored"})


def verify(connection: str, body: bytes) -> None:
    """Check id, time (at most 300 s old) and signature with every live secret. Raises SignatureInvalid."""
    app_services = services()
    if connection not in app_services.config.server.lms_connections:
        raise SignatureInvalid
    if any(_verified(secret, body) for secret in app_services.lms_secrets.get(connection, ())):
        return
    with app_services.store.read() as session:
        made_here = webhooks.live_secrets(session, connection, app_services.secret_key)
    if not any(_verified(secret, body) for secret in made_here):
        raise SignatureInvalid


def _verified(secret: str, body: bytes) -> bool:
    """The library raises many things for malformed headers and bodies; all of them mean no."""
    try:
        key = base64.b64decode(secret.removeprefix("whsec_") + "==")
        if len(key) < LEAST_SECRET:
            return False
        Webhook(key).verify(body, dict(request.headers), json_parse=False)
    except (WebhookVerificationError, ValueError, binascii.Error, OverflowError, TypeError):
        return False
    return True


def parse_event(body: bytes) -> Event:
    """The message. Raises InvalidField when it is not JSON of the right shape."""
    try:
        return Event.model_validate_json(body)
    except ValueError:
        raise InvalidField(BODY_FORM) from None


class _Repeated(Exception):
    """This message was taken before."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(answer)
        self.answer = answer


class Taking:
    """One message, by its id and the hash of its body, that is to be done once and in time."""

    def __init__(self, connection: str, message_id: str, digest: str, until: float) -> None:
        self.connection, self.message_id, self.digest, self.until = connection, message_id, digest, until

    def before(self, session: Session) -> dict[str, Any] | None:
        """What it was answered before. Raises Conflict for another body under its id."""
        row = session.get(tables.InboundWebhook, (self.connection, self.message_id))
        if row is None:
            return None
        if row.body_hash != self.digest:
            raise Conflict(WEBHOOK_ID_USED)
        if row.answer is not None:
            return row.answer
        if row.submission_id is None:
            raise NotFound
        return _accepted(row.submission_id)

    def require_first(self, session: Session) -> None:
        """Go on, or raise _Repeated: of parallel ones exactly one gets through."""
        before = self.before(session)
        if before is not None:
            raise _Repeated(before)

    def require_course(self, slug: str) -> None:
        """Raises CourseNotBound, alike for courses of others and for courses that do not exist."""
        if not services().config.server.admits(self.connection, slug):
            raise CourseNotBound(COURSE_NOT_BOUND(connection=self.connection, course=slug[:64]))

    def remember(
        self, session: Session, submission_id: str | None = None, answer: dict[str, Any] | None = None
    ) -> None:
        """Note it in the transaction of what it does. Raises TooLate."""
        session.add(
            tables.InboundWebhook(
                connection=self.connection,
                message_id=self.message_id,
                body_hash=self.digest,
                submission_id=submission_id,
                answer=answer,
                received_at=now(session),
            )
        )
        session.flush()
        if time.monotonic() > self.until:
            raise TooLate

    def once(self, work: Callable[[Session], dict[str, Any]]) -> dict[str, Any]:
        """Do it and note it in one transaction."""
        for last in (False, True):
            try:
                with services().store.write() as session:
                    self.require_first(session)
                    answer = {"status": "done", **work(session)}
                    self.remember(session, answer=answer)
                    return answer
            except _Repeated as repeated:
                return repeated.answer
            except IntegrityError:
                # two of the same at once on a database that locks rows: now the first one's row is there
                if last:
                    raise
        raise AssertionError


def _submit(message: Taking, body: dict[str, Any]) -> dict[str, Any]:
    data = _data(Submitted, body)
    message.require_course(data.assignment.partition("/")[0])
    with services().store.read() as session:  # before anything is got from elsewhere
        versions.published_version(session, versions.find_by_name(session, data.assignment))
    content = intake.read(_files(data, message.until))

    def build(session: Session) -> IncomingSubmission:
        message.require_first(session)
        return _incoming(session, message.connection, data, content)

    try:
        return _accepted(intake.accept(build, message.remember).submission_id)
    except _Repeated as repeated:
        return repeated.answer


def _enrol(message: Taking, body: dict[str, Any]) -> dict[str, Any]:
    data = _data(Roster, body)
    message.require_course(data.course)
    return message.once(lambda session: lms_rosters.update_roster(session, message.connection, data))


def _assign(message: Taking, body: dict[str, Any]) -> dict[str, Any]:
    data = _data(Assigned, body)
    message.require_course(data.course)
    return message.once(lambda session: lms_rosters.upsert_assignment(session, message.connection, data))


KINDS: dict[str, Callable[[Taking, dict[str, Any]], dict[str, Any]]] = {
    "submission.created": _submit,
    "roster.updated": _enrol,
    "assignment.upserted": _assign,
}


def _data(model: type[P], body: dict[str, Any]) -> P:
    return parse(model, body)


def _files(data: Submitted, until: float) -> tuple[UploadedFile, ...]:
    """Their contents, at most as many bytes as an upload may have; got from elsewhere one after the other."""
    files, left = [], parsing.limits(services().config.server).max_upload_bytes
    fetched_by = min(until, time.monotonic() + FETCH_S)
    for file in data.files:
        if file.content_base64 is not None:
            content = _decoded(file.name, file.content_base64)
        else:
            content = fetch(file, fetched_by, left)
        left = max(0, left - len(content))
        files.append(UploadedFile(file.name, content))
    return tuple(files)


def _decoded(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise InvalidField(FILE_NOT_BASE64(name=repr(name[:80]))) from None


def _incoming(
    session: Session, connection: str, data: Submitted, content: SubmittedFiles
) -> IncomingSubmission:
    assignment = versions.find_by_name(session, data.assignment)
    student = users.find_or_create_student(
        session,
        f"lms:{connection}",
        data.student.id,
        data.student.name,
        data.student.email,
        assignment.course_id,
    )
    # the learning system has its own due date, and a message may come hours later: what it took is not lost
    return IncomingSubmission(assignment.id, student.id, "webhook", content, data.priority, trusted=True)


def _accepted(submission_id: str) -> dict[str, Any]:
    return {"status": "accepted", "id": submission_id}
