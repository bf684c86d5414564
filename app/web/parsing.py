"""Reading what a request says: its parameters, its body, its files; each error names the field."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypeVar, get_origin

from flask import Response, jsonify, request
from pydantic import BaseModel, ValidationError
from werkzeug.datastructures import FileStorage

from grading.config.settings import Server
from grading.documents import Limits, UploadedFile
from grading.documents.files import shown
from grading.domain.errors import CannotUndo, EmptyUpload, GraderError, UploadTooLarge
from grading.domain.messages import define_message
from grading.domain.permissions import Actor, Subject, may

BODY_TOO_LARGE = define_message(
    "request.body_too_large", "The body is larger than %(most_kb)s KB. Send it in parts."
)
NO_FILE_CHOSEN = define_message("request.no_file_chosen", "Choose at least one file to submit.")

T = TypeVar("T", bound=BaseModel)
MOST_BODY = 2 * 1024 * 1024
"""Bytes of a body of JSON."""
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
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
MIB = 1024 * 1024
FORM_KEY = re.compile(r"[A-Za-z0-9_-]{16,64}")


class InvalidField(GraderError):
    """A field of the request is missing or has a value that is not allowed."""

    code = "field_invalid"
    status = 422
    default_message = define_message(
        "error.invalid_field", "A field of the request is missing or has a value that is not allowed."
    )


class HasNul(GraderError):
    """The body contains a NUL character, which is not allowed. Remove it."""

    code = "nul_refused"
    status = 422
    default_message = define_message(
        "error.has_nul", "The body contains a NUL character, which is not allowed. Remove it."
    )


class NoJson(GraderError):
    """Send the body as JSON, with Content-Type: application/json."""

    code = "wrong_content_type"
    status = 415
    default_message = define_message(
        "error.no_json", "Send the body as JSON, with Content-Type: application/json."
    )


class NoForm(GraderError):
    """Send the body as a form, with Content-Type: multipart/form-data."""

    code = "wrong_content_type"
    status = 415
    default_message = define_message(
        "error.no_form", "Send the body as a form, with Content-Type: multipart/form-data."
    )


def parse(model: type[T], data: dict[str, Any]) -> T:
    """Validate fields of a request; the error names the field."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise invalid_field(error) from None


def of_query(model: type[T]) -> T:
    """The parameters of the address, each at most once but those that are lists. Raises InvalidField."""
    fields: dict[str, Any] = {}
    for name, values in request.args.lists():
        if _is_list(model, name):
            fields[name] = values
            continue
        if len(values) > 1:
            raise InvalidField(f"{shown(name)}: appears more than once. Send it once.")
        fields[name] = values[0]
    return parse(model, fields)


def _is_list(model: type[BaseModel], name: str) -> bool:
    field = model.model_fields.get(name)
    return field is not None and get_origin(field.annotation) is list


def of_body(model: type[T]) -> T:
    """The body of the request, which must be JSON. Raises NoJson, UploadTooLarge, InvalidField."""
    data = raw_body()
    if not request.is_json:
        raise NoJson
    if _NUL.search(data):
        raise HasNul
    try:
        return model.model_validate_json(data or b"{}", strict=True)
    except ValidationError as error:
        raise invalid_field(error) from None


def of_form(model: type[T]) -> tuple[T, tuple[UploadedFile, ...]]:
    """The fields of a form with `files`, and these with their names.

    Raises NoForm, EmptyUpload, InvalidField.
    """
    if request.mimetype != "multipart/form-data":
        raise NoForm
    files = uploaded(request.files.getlist("files"))
    return parse(model, {**request.form.to_dict(), "files": [one.data for one in files]}), files


def raw_body() -> bytes:
    """What was sent. Raises UploadTooLarge."""
    if (request.content_length or 0) > MOST_BODY:
        raise UploadTooLarge(BODY_TOO_LARGE(most_kb=MOST_BODY // 1024))
    data: bytes = request.get_data(cache=True)
    return data


def invalid_field(error: ValidationError) -> InvalidField:
    """The first thing that is wrong, in words."""
    first = error.errors()[0]
    field = shown(".".join(str(part) for part in first["loc"])) if first["loc"] else "request"
    message = MESSAGES.get(first["type"], first["msg"])
    return InvalidField(f"{field}: {message}.")


def tagged(body: dict[str, Any]) -> Response:
    """JSON with an ETag; 304 without a body when the caller has it already."""
    response = jsonify(body)
    response.add_etag()
    response.headers["Cache-Control"] = "private, no-cache"
    response.make_conditional(request)
    return response


def limits(server: Server) -> Limits:
    """The bounds of one submission as configured."""
    return Limits(
        max_upload_bytes=server.max_upload_mb * MIB,
        max_data_bytes=server.max_data_mb * MIB,
        max_files=server.max_files,
    )


def uploaded(files: Iterable[FileStorage]) -> tuple[UploadedFile, ...]:
    """The files of a form. Raises EmptyUpload when none was chosen."""
    chosen = [file for file in files if file.filename]
    if not chosen:
        raise EmptyUpload(NO_FILE_CHOSEN)
    return tuple(UploadedFile(file.filename or "", file.read()) for file in chosen)


def whole_number(text: str, digits: int = 9) -> int | None:
    """A number of at most so many ASCII digits, as forms and addresses have them; None for all else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= digits else None


def form_moment(name: str) -> datetime:
    """A moment of a form that undoes what was done then. Raises CannotUndo."""
    try:
        moment = datetime.fromisoformat(request.form.get(name, ""))
    except ValueError:
        raise CannotUndo from None
    if moment.tzinfo is None:
        raise CannotUndo
    return moment


def new_key() -> str:
    """A key for one form: sent twice, it submits once."""
    return secrets.token_urlsafe(16)


def form_key(key: str) -> str:
    """The key a form was sent with, or nothing when it is not one of ours."""
    return key if FORM_KEY.fullmatch(key) else ""


def trusted(actor: Actor, course_id: int) -> bool:
    """Whether due dates and numbers of submissions do not bind this person."""
    return may(actor, "submit.for_others", Subject(course_id))
