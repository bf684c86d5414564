"""Lists a page at a time, by cursors: a page costs the same however far in it is, and none is shown twice."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, TypeVar
from urllib.parse import urlencode

from flask import request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from app.api.fields import MOST_NUMBER, RequestModel, whole
from app.api.routes import Call
from grading.domain.errors import GraderError
from grading.domain.messages import define_message

T = TypeVar("T")
MOST = 200
USUAL = 50


class CursorInvalid(GraderError):
    """The cursor is not valid for this list. Start without a cursor, then use the value of `next`."""

    code = "cursor_invalid"
    status = 422
    default_message = define_message(
        "error.cursor_invalid",
        "The cursor is not valid for this list. Start without a cursor, then use the value of `next`.",
    )


class Paged(RequestModel):
    """Which part of a list."""

    limit: Annotated[int, Field(ge=1, le=MOST), BeforeValidator(whole)] = Field(
        default=USUAL, description="the maximum number of items on a page"
    )
    cursor: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="the cursor from the `next` of the previous page"
    )


class Page(BaseModel, Generic[T]):
    """One page of a list."""

    model_config = ConfigDict(json_schema_extra={"description": "One page of a list."})
    items: list[T] = Field(description="the items of the page")
    next: str | None = Field(description="the URL of the next page; `null` on the last page", examples=[None])


def number(query: Paged) -> int | None:
    """The cursor of a list by number. Raises CursorInvalid."""
    found = _read(query.cursor, 1)
    if found is None:
        return None
    if type(found[0]) is not int or not 0 < found[0] <= MOST_NUMBER:
        raise CursorInvalid
    return found[0]


def moment_and_id(query: Paged) -> tuple[datetime, str] | None:
    """The cursor of a list by time. Raises CursorInvalid."""
    found = _read(query.cursor, 2)
    if found is None:
        return None
    try:
        at, one = datetime.fromisoformat(str(found[0])), str(found[1])
        if at.tzinfo is None or not one.isalnum() or len(one) > 32:
            raise CursorInvalid
        return at.astimezone(UTC), one
    except (ValueError, OverflowError):
        raise CursorInvalid from None


def _read(cursor: str | None, parts: int) -> list[Any] | None:
    if cursor is None:
        return None
    try:
        found = json.loads(base64.b64decode(cursor.encode() + b"==", altchars=b"-_", validate=False))
    except (ValueError, binascii.Error, RecursionError):
        raise CursorInvalid from None
    if not isinstance(found, list) or len(found) != parts:
        raise CursorInvalid
    return found


def cursor_of(*key: Any) -> str:
    """The cursor behind the thing with this key."""
    values = [one.isoformat() if isinstance(one, datetime) else one for one in key]
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def cut(
    call: Call, query: Paged, rows: Sequence[T], key: Callable[[T], tuple[Any, ...]]
) -> tuple[Sequence[T], str | None]:
    """The rows of the page and the address of the next one, told in a Link, too; one row more was read."""
    if len(rows) <= query.limit:
        return rows, None
    items = rows[: query.limit]
    parameters = [(name, value) for name, value in request.args.items(multi=True) if name != "cursor"]
    address = f"{request.path}?{urlencode([*parameters, ('cursor', cursor_of(*key(items[-1])))])}"
    call.headers["Link"] = f'<{address}>; rel="next"'
    return items, address
