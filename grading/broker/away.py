"""Why Redis gives no answer, in words: it is unavailable, or it refuses the password."""

from __future__ import annotations

from redis.exceptions import AuthenticationError

REFUSED = (
    "WRONGPASS",
    "NOAUTH",
    "invalid username-password pair",
    "invalid password",
    "Authentication required",
)
"""As Redis and its client say it; the queue's library keeps no more of an error than its text."""


def refuses_password(error: BaseException | None) -> bool:
    """Whether Redis is there and does not accept this user and password."""
    while error is not None:
        if isinstance(error, AuthenticationError) or str(error).startswith(REFUSED):
            return True
        error = error.__cause__ or error.__context__
    return False


def why_away(error: BaseException) -> str:
    """The beginning of a line for logs."""
    refused = "redis refuses the password of GRADER_REDIS_URL"
    return refused if refuses_password(error) else "redis is unavailable"
