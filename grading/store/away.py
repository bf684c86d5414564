"""Why a database gives no answer, in words."""

from __future__ import annotations

import re

from sqlalchemy.exc import SQLAlchemyError

REFUSED = re.compile(r"password authentication failed|Passwort-Authentifizierung|no password supplied")
"""As PostgreSQL and its library say it; the error of a connection has no other mark."""


def first_line(error: SQLAlchemyError) -> str:
    """What the driver says, without the statement."""
    lines = str(getattr(error, "orig", None) or type(error).__name__).splitlines() or [type(error).__name__]
    found = next((line for line in lines if REFUSED.search(line)), lines[0])
    return found.strip().removesuffix(".")


def refuses_password(error: SQLAlchemyError) -> bool:
    """Whether the database is there and does not accept the user's password."""
    return bool(REFUSED.search(str(getattr(error, "orig", None) or "")))


def why_away(error: SQLAlchemyError) -> str:
    """The beginning of a line for logs."""
    refused = "the database refuses the password of GRADER_DATABASE_URL"
    return refused if refuses_password(error) else "the database is unavailable"
