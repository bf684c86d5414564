"""Kinds of fields that requests have: bounded, and no more lenient than their description."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

MOST_NUMBER = 2_147_483_647
PRINTABLE = r"^[^\x00-\x1f\x7f]+$"
STORABLE = r"^[^\x00]*$"
"""PostgreSQL takes no NUL."""
_MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)", re.ASCII
)


class RequestModel(BaseModel):
    """What a request says; a field that nobody knows is a mistake, not an extra."""

    model_config = ConfigDict(extra="forbid")


def whole(value: Any) -> Any:
    """As addresses write it; and 3.0, which is the same number in JSON."""
    if isinstance(value, str):
        if not re.fullmatch(r"-?\d{1,10}", value, re.ASCII):
            raise ValueError("must be a whole number")
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _yes(value: Any) -> Any:
    if isinstance(value, str):
        if value not in ("true", "false"):
            raise ValueError("must be true or false")
        return value == "true"
    return value


def _moment(value: Any) -> Any:
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        raise ValueError("must be a date and time with its zone, such as 2026-11-24T23:59:00Z")
    return datetime.fromisoformat(value.upper())


def _utc(value: datetime) -> datetime:
    """At the ends of the calendar there may be no such moment in UTC."""
    try:
        return value.astimezone(UTC)
    except OverflowError:
        return value.replace(tzinfo=UTC)


Whole = Annotated[int, Field(ge=1, le=MOST_NUMBER), BeforeValidator(whole)]
Yes = Annotated[bool, BeforeValidator(_yes)]
Moment = Annotated[AwareDatetime, BeforeValidator(_moment), AfterValidator(_utc)]
Line = Annotated[str, Field(min_length=1, max_length=200, pattern=PRINTABLE)]
Text = Annotated[str, Field(max_length=20_000, pattern=STORABLE)]
Reason = Annotated[str, Field(max_length=2_000, pattern=STORABLE)]
SubmissionId = Annotated[str, Field(min_length=1, max_length=32, pattern=r"^[0-9a-z]+$")]
