"""The one error boundary: every error becomes problem details (RFC 9457) or a kind page."""

from __future__ import annotations

import errno
import logging
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, g, jsonify, redirect, render_template, request, url_for
from flask_login import current_user
from flask_wtf.csrf import CSRFError
from sqlalchemy.exc import DataError, SQLAlchemyError
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response as BaseResponse

from app.web import kept_forms, security
from app.web.error_texts import fault
from app.web.i18n import gettext as _
from app.web.i18n import render_message
from app.web.request_ids import request_id
from app.web.services import services
from grading.domain.errors import FilesUnavailable, GraderError, NotSignedIn
from grading.domain.messages import Message, verbatim
from grading.store import database

log = logging.getLogger(__name__)
CODES = {400: "bad_request", 404: "not_found", 405: "method_not_allowed", 413: "upload_too_large"} | {
    415: "unsupported_file",
    429: "too_many_requests",
}
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def handle_errors(app: Flask) -> None:
    """Install the boundary."""
    app.register_error_handler(GraderError, _grader_error)
    app.register_error_handler(HTTPException, _http)
    app.register_error_handler(SQLAlchemyError, _store)
    app.register_error_handler(Exception, _unknown)


def for_machines() -> bool:
    """Whether the caller is a program: it gets problem details."""
    return request.path.startswith(("/api/", "/webhooks/", "/metrics", "/healthz", "/readyz")) or (
        request.path.endswith(".json")
    )


def answer(status: int, code: str, message: str | Message) -> Response | BaseResponse:
    """An error in the form the caller understands; a string is said as it is."""
    text = verbatim(message) if isinstance(message, str) else message
    if for_machines():
        problem = {"type": f"urn:grader:{code}", "title": _title(status), "status": status}
        about = {"detail": text.message, "code": code, "request_id": request_id()}
        response = jsonify(**problem, **about, **_coded(text), **_whether_again(status))
        response.mimetype = "application/problem+json"
    else:
        page = render_template(
            "web/error.html",
            status=status,
            fault=fault(status),
            message=render_message(text),
            request_id=request_id(),
        )
        response = Response(page, mimetype="text/html")
    response.status_code = status
    if status == HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _coded(message: Message) -> dict[str, Any]:
    return (
        {"message_code": message.code, "params": message.model_dump(mode="json")["params"]}
        if message.code
        else {}
    )


def _whether_again(status: int) -> dict[str, bool]:
    """For learning systems: whether the same message may be taken later."""
    if not request.path.startswith("/webhooks/lms/"):
        return {}
    return {"retry": status >= 500 or status in (404, 429)}


def _look_for_reader() -> None:
    """The page of an error must not fail because the database cannot say who reads it."""
    try:
        bool(current_user.is_authenticated)
    except SQLAlchemyError:
        g.broken = True


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"


def _grader_error(error: GraderError) -> Response | BaseResponse:
    _look_for_reader()
    if isinstance(error, NotSignedIn) and not for_machines():
        if request.method == "POST" and (kept := kept_forms.of_request()) is not None:
            return Response(kept_forms.page(kept), HTTPStatus.UNAUTHORIZED)
        target = request.full_path.rstrip("?") if request.method == "GET" else None
        return redirect(url_for("sign_in.form", next=target), 303)
    response = answer(error.status, error.code, error.coded)
    if isinstance(error, FilesUnavailable):
        response.headers["Retry-After"] = "30"
    return response


def _http(error: HTTPException) -> Response | BaseResponse:
    status = error.code or 500
    if status < 400:
        return error.get_response()
    _look_for_reader()
    if isinstance(error, CSRFError) and not g.get("broken") and (kept := kept_forms.of_request()) is not None:
        return Response(kept_forms.page(kept), status)
    response = answer(status, CODES.get(status, f"http_{status}"), _sentence(error, status))
    for name, value in error.get_headers():
        if name.lower() in ("allow", "retry-after"):
            response.headers[name] = value
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        response.headers.setdefault("Retry-After", "60")
    return response


def _sentence(error: HTTPException, status: int) -> str:
    if isinstance(error, CSRFError):
        return _(
            "This form has expired or was sent from another site. Go back, reload the page, sign in "
            "if asked, and try again."
        )
    limit, length = services().config.server.max_upload_mb, request.content_length
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE and length is not None and length <= limit * 1024 * 1024:
        return _("The form has too many fields or too much text in one field. Upload your work as files.")
    return {
        404: _("This page does not exist."),
        405: _("This address does not support this request method."),
        413: _(
            "The upload is larger than the %(limit)s MB this server accepts. Submit fewer or smaller files.",
            limit=limit,
        ),
        429: _("Too many requests. Wait a minute and try again."),
    }.get(status, error.description or _("The request is not valid."))


def _store(error: SQLAlchemyError) -> Response | BaseResponse:
    """Whatever the database could not do was rolled back; the caller may send it again."""
    g.broken = True
    if database.is_disk_full(error, services().store):
        return _full(error)
    if isinstance(error, DataError):  # such as NUL in a text, which no browser sends
        return answer(400, CODES[400], _("The request is not valid."))
    if not database.is_unavailable(error):
        return _unknown(error)
    log.error("database error: %s", error)
    security.read_rest()
    # whether a commit that was cut off came about is not known; forms and keys are stored once
    sentence = _("The database is not available. Try again in a minute: the same form is stored only once.")
    response = answer(503, "store_away", sentence)
    response.headers["Retry-After"] = "30"
    return response


def _unknown(error: Exception) -> Response | BaseResponse:
    g.broken = True
    if _no_room(error):
        return _full(error)
    reference = request_id()
    log.error("unexpected error %s at %s %s", reference, request.method, request.path, exc_info=error)
    return answer(
        500,
        "internal",
        _(
            "Something went wrong on the server. The error was logged as %(reference)s. Include this "
            "reference when you report it.",
            reference=reference,
        ),
    )


def _no_room(error: Exception) -> bool:
    """Whether a file could not be written: large uploads are kept in temporary files while they arrive."""
    # a process that never wrote one says so when none of the folders for them takes any
    return isinstance(error, OSError) and (
        error.errno in NO_ROOM or (error.errno == errno.ENOENT and "temporary directory" in str(error))
    )


def _full(error: Exception) -> Response | BaseResponse:
    # as text: who keeps the record would keep the half-written file with it
    log.error("the disk is full: %s", str(error))
    security.read_rest()
    sentence = _(
        "The server's disk is full, so nothing was stored. Tell the operator of this server, then "
        "send it again."
    )
    return answer(507, "disk_full", sentence)
