"""Webhooks of learning systems, by Standard Webhooks 1.0: verified before anything is parsed, done once."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any, Literal

from flask import Blueprint, Response, jsonify, request
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.orm import Session
from standardwebhooks import Webhook, WebhookVerificationError

from app import handin
from app.api import InvalidField, parse
from app.api_values import PRINTABLE
from app.services import services
from grading.documents import HandIn, UploadedFile
from grading.errors import Conflict, NotFound, SignatureInvalid
from grading.store import accounts, assignments, tables
from grading.store.database import now
from grading.store.submissions import Incoming

endpoints = Blueprint("webhooks", __name__, url_prefix="/webhooks")
LEAST_SECRET = 24
"""Bytes a signing secret must have."""


class Student(BaseModel):
    """Who handed in, as the learning system knows them."""

    id: str = Field(max_length=200, pattern=PRINTABLE)
    name: str = Field(default="", max_length=200)
    email: str = Field(default="", max_length=200)


class File(BaseModel):
    """A file of the hand-in."""

    name: str = Field(min_length=1, max_length=400)
    content_base64: str


class Data(BaseModel):
    """What was handed in."""

    assignment: str = Field(max_length=130, pattern=PRINTABLE)
    student: Student
    files: list[File] = Field(min_length=1, max_length=1000)
    priority: Literal["interactive", "batch"] = "interactive"


class Event(BaseModel):
    """A message; `data` is only read for types that are known."""

    model_config = ConfigDict(extra="ignore")
    type: str
    data: dict[str, Any] = Field(default_factory=dict)


@endpoints.post("/lms/<connection>")
def receive(connection: str) -> Response:
    """Take a message of a learning system; 2xx only after the commit."""
    body = request.get_data()
    verify(connection, body)
    message_id, digest = request.headers["webhook-id"], hashlib.sha256(body).hexdigest()
    if not (message_id.isprintable() and len(message_id) <= 200):
        raise InvalidField("webhook-id: at most 200 printable characters.")
    with services().store.read() as session:
        before = _before(session, connection, message_id, digest)
    if before is not None:
        return _answer(before)
    event = parse_event(body)
    if event.type != "submission.created":
        return jsonify(status="ignored")
    data = parse(Data, event.data)
    content = handin.read(_files(data))
    return _answer(_take_once(connection, message_id, digest, data, content))


def verify(connection: str, body: bytes) -> None:
    """Check id, time (at most 300 s old) and signature with every active secret. Raises SignatureInvalid."""
    given = services()
    secrets = given.lms_secrets.get(connection, ())
    if connection not in given.config.server.lms_connections or not secrets:
        raise SignatureInvalid
    if not any(_verified(secret, body) for secret in secrets):
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
        raise InvalidField("body: JSON with 'type' and 'data' is expected.") from None


def _files(data: Data) -> tuple[UploadedFile, ...]:
    files = []
    for file in data.files:
        try:
            files.append(UploadedFile(file.name, base64.b64decode(file.content_base64, validate=True)))
        except ValueError:
            raise InvalidField(f"data.files: the content of {file.name[:80]!r} is not base64.") from None
    return tuple(files)


def _take_once(connection: str, message_id: str, digest: str, data: Data, content: HandIn) -> str | None:
    """Hand in and note the message in one transaction; of parallel ones exactly one gets through."""

    def build(session: Session) -> Incoming:
        before = _before(session, connection, message_id, digest)
        if before is not None:
            raise _Seen(before)
        return _incoming(session, connection, data, content)

    def remember(session: Session, submission_id: str) -> None:
        session.add(
            tables.InboundWebhook(
                connection=connection,
                message_id=message_id,
                body_hash=digest,
                submission_id=submission_id,
                received_at=now(session),
            )
        )

    try:
        return handin.accept(build, remember).submission_id
    except _Seen as seen:
        return seen.submission_id


class _Seen(Exception):
    """This message was taken before."""

    def __init__(self, submission_id: str) -> None:
        super().__init__(submission_id)
        self.submission_id = submission_id


def _before(session: Session, connection: str, message_id: str, digest: str) -> str | None:
    """The submission this message led to before. Raises Conflict for another body under its id."""
    row = session.get(tables.InboundWebhook, (connection, message_id))
    if row is None:
        return None
    if row.body_hash != digest:
        raise Conflict("Another message was sent under this webhook-id.")
    return row.submission_id


def _incoming(session: Session, connection: str, data: Data, content: HandIn) -> Incoming:
    assignment = assignments.find(session, data.assignment)
    student = accounts.find_or_create_student(
        session,
        f"lms:{connection}",
        data.student.id,
        data.student.name,
        data.student.email,
        assignment.course_id,
    )
    # the learning system keeps its own door, and a message may come hours later: what it took is not lost
    return Incoming(assignment.id, student.id, "webhook", content, data.priority, trusted=True)


def _answer(submission_id: str | None) -> Response:
    if submission_id is None:
        raise NotFound
    return jsonify(status="accepted", id=submission_id)
