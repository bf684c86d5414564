"""Kinds of fields that requests have: bounded, and no more lenient than their description."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

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


class ChangeModel(RequestModel):
    """What a PATCH sets: a field that is left out stays; `null` only where a value can be taken away.

    A field's default here is never used. It is not in the description either, because generated clients send
    the defaults that a description names.
    """

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core_schema)
        for field in handler.resolve_ref_schema(schema)["properties"].values():
            field.pop("default", None)
        return schema


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
