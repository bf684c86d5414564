"""What can go wrong, as classes; those of answers are made from problem details (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ClientError(Exception):
    """Every error of this package; its text is a sentence for people."""


class ServerAway(ClientError):
    """The server did not answer, also not when asked again."""


class NotGradedYet(ClientError):
    """The submission is not graded within the time to wait; `status` is its last one."""

    def __init__(self, submission_id: str, status: str) -> None:
        super().__init__(f"Submission {submission_id} is still {status}; ask again later.")
        self.submission_id = submission_id
        self.status = status


class InvalidWebhook(ClientError):
    """A message was not signed with any of the secrets, or its time is not now."""


class ApiError(ClientError):
    """The server answered that it does not do this."""

    def __init__(self, status: int, problem: Mapping[str, Any], request_id: str = "") -> None:
        detail = problem.get("detail") or problem.get("title")
        super().__init__(str(detail or f"The server answered {status} without saying why."))
        self.status = status
        self.code = str(problem.get("code") or "")
        """Names the error for programs; it stays the same."""
        self.request_id = str(problem.get("request_id") or request_id)
        """Names the request in the server's log."""
        self.problem = problem


class InvalidRequest(ApiError):
    """A field, a parameter or a file cannot be taken; the text names it."""


class NotSignedIn(ApiError):
    """The token is unknown, expired or revoked."""


class Forbidden(ApiError):
    """The token's owner may not do this, or the token lacks a scope."""


class NotFound(ApiError):
    """Nothing is there, or nothing that the token's owner may know of."""


class Conflict(ApiError):
    """It does not fit what is there, such as a submission after the last moment."""


class Changed(ApiError):
    """Somebody changed it meanwhile."""


class TooManyRequests(ApiError):
    """Too many requests in a minute, and the wait that the server asks for is too long."""


class ServerFailed(ApiError):
    """The server cannot do it now."""


_CLASSES: Mapping[int, type[ApiError]] = {
    **dict.fromkeys((400, 413, 415, 422), InvalidRequest),
    401: NotSignedIn,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    **dict.fromkeys((412, 428), Changed),
    429: TooManyRequests,
}


def error_of(status: int, problem: Mapping[str, Any], request_id: str = "") -> ApiError:
    """The error of an answer, of the class for its status."""
    kind = _CLASSES.get(status, ServerFailed if status >= 500 else ApiError)
    return kind(status, problem, request_id)
