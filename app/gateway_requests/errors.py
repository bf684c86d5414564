"""Errors as OpenAI's clients know them: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

import logging
import secrets
from typing import Any

from flask import Flask, Response, jsonify
from sqlalchemy.exc import SQLAlchemyError
from werkzeug.exceptions import HTTPException

from grading.broker.away import why_away
from grading.broker.dispatch import AWAY
from grading.broker.gateway_requests import ENDING, PREEMPTED
from grading.domain.errors import Forbidden, GraderError, NotSignedIn
from grading.domain.messages import define_message

log = logging.getLogger(__name__)
SOON_S, LATER_S = 5, 30


class Refused(GraderError):
    """The gateway cannot answer this request."""

    code = "invalid_request"
    status = 400
    kind = "invalid_request_error"
    default_message = define_message("error.gateway_refused", "The gateway cannot answer this request.")

    def __init__(self, message: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.retry_after_s: int | None = None


class NoSuchModel(Refused):
    """No machine has this model."""

    code = "model_not_found"
    status = 404
    default_message = define_message(
        "error.gateway_no_such_model",
        "No machine has this model. To list the available models, send GET /v1/models.",
    )


class NoEmbeddings(Refused):
    """No machine makes embeddings with this model."""

    code = "embeddings_not_supported"
    status = 404
    default_message = define_message(
        "error.gateway_no_embeddings",
        "No machine makes embeddings with this model. To list the available models, send GET /v1/models.",
    )


class TooMany(Refused):
    """Too many requests are open."""

    code = "rate_limit_exceeded"
    status = 429
    kind = "rate_limit_error"
    default_message = define_message(
        "error.gateway_too_many", "Too many requests are open. Try again when some of them are finished."
    )

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = SOON_S


class QuotaSpent(Refused):
    """The token has used all its tokens of the day."""

    code = "insufficient_quota"
    status = 429
    kind = "insufficient_quota"

    def __init__(self, limit: int, left_s: int) -> None:
        super().__init__(
            f"This API token has used its {limit} tokens of today. The limit resets at midnight UTC, in "
            f"{left_s // 3600} h {left_s % 3600 // 60} min."
        )
        self.retry_after_s = left_s


class Failed(Refused):
    """The machines did not answer."""

    code = "engine_failed"
    status = 502
    kind = "server_error"
    default_message = define_message("error.gateway_failed", "The machines did not answer. Try again.")


class Away(Failed):
    """The machines cannot be reached right now. Try again in a minute."""

    code = "queue_away"
    status = 503
    default_message = define_message(
        "error.gateway_away", "The machines cannot be reached right now. Try again in a minute."
    )

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = LATER_S


FAULTS: dict[str, tuple[int, str]] = {
    PREEMPTED: (503, "Grading has priority, so this answer was stopped. Try again in a few minutes."),
    ENDING: (503, "The machine is shutting down. Try again."),
    "machine_lost": (503, "The machine stopped responding. Try again."),
    "no_machine": (503, "No machine has this model now. Try again in a few minutes."),
    "machines_busy": (503, "All machines are busy, and grading has priority. Try again in a few minutes."),
    "engine_busy": (503, "The queue of the engine is full. Try again in a few minutes."),
    "model_missing": (503, "The machine does not have this model."),
    "engine_unreachable": (503, "The engine of the machine cannot be reached. Try again."),
    "budget_exceeded": (504, "The answer was not complete within the time limit. Use a smaller max_tokens."),
    "job_invalid": (
        400,
        "Messages and max_tokens, or a text of input, exceed the model's context, or its chat template "
        "refuses these messages.",
    ),
    "tools_not_supported": (
        400,
        "The model or its server cannot call these tools. Remove tools, or use another model.",
    ),
    "embeddings_not_supported": (400, "The model or its server makes no embeddings."),
    "schema_not_bound": (
        400,
        "The engine of this model cannot constrain answers to a schema. Remove response_format.",
    ),
}
"""What machines say -> status and sentence. Not the engine's own words: they may hold addresses."""


def fault(code: str) -> Refused:
    """The error for what a machine said."""
    status, sentence = FAULTS.get(code, (502, "The engine did not return a usable answer."))
    made = Refused(sentence) if status < 500 else Failed(sentence)
    made.status, made.code = status, code
    made.retry_after_s = SOON_S if status == 503 else None
    return made


def content(error: GraderError) -> dict[str, Any]:
    """The body for an error."""
    kind = error.kind if isinstance(error, Refused) else KINDS.get(type(error), "invalid_request_error")
    param = error.param if isinstance(error, Refused) else None
    return {"error": {"message": error.message, "type": kind, "param": param, "code": error.code}}


KINDS: dict[type[GraderError], str] = {NotSignedIn: "authentication_error", Forbidden: "permission_error"}


def handle_errors(app: Flask) -> None:
    """Install the one boundary."""
    app.register_error_handler(GraderError, answer)
    app.register_error_handler(HTTPException, _http)
    app.register_error_handler(SQLAlchemyError, _store)
    app.register_error_handler(Exception, _unknown)
    for kind in AWAY:
        app.register_error_handler(kind, _away)


def answer(error: GraderError) -> Response:
    """An error before anything else was said."""
    response = jsonify(content(error))
    response.status_code = error.status
    if isinstance(error, NotSignedIn):
        response.headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, Refused) and error.retry_after_s is not None:
        response.headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, QuotaSpent):
        # older official clients retry at once where Retry-After says more than a minute
        response.headers["x-should-retry"] = "false"
    return response


def _http(error: HTTPException) -> Response:
    status = error.code or 500
    sentences = {
        404: "This page does not exist.",
        413: "The request is larger than this server accepts.",
    }
    refused = Refused(sentences.get(status, error.description))
    refused.status, refused.code = status, "not_found" if status == 404 else f"http_{status}"
    return answer(refused)


def _store(error: SQLAlchemyError) -> Response:
    log.error("database error: %s", type(error).__name__)
    return answer(Away("Tokens cannot be checked right now. Try again in a minute."))


def _away(error: Exception) -> Response:
    # not the error itself: that of a pipeline repeats what was to be kept
    log.warning("%s: %s", why_away(error), type(error).__name__)
    return answer(Away())


def _unknown(error: Exception) -> Response:
    reference = secrets.token_hex(6)
    # without the error's own words, which may repeat what a client wrote
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else "nowhere"
    log.error("unexpected error %s: %s at %s", reference, type(error).__name__, where)
    failed = Failed(f"Something went wrong on the server. The error was logged as {reference}.")
    failed.status, failed.code = 500, "internal"
    return answer(failed)
