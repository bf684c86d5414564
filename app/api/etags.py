"""ETags of things that several people change: who changes one says which state of it they saw."""

from __future__ import annotations

import hashlib

from flask import request
from pydantic import BaseModel

from grading.domain.errors import GraderError
from grading.domain.messages import define_message


class MatchMissing(GraderError):
    """Send If-Match with the ETag of the version you read, or * to change any version."""

    code = "if_match_missing"
    status = 428
    default_message = define_message(
        "error.match_missing",
        "Send If-Match with the ETag of the version you read, or * to change any version.",
    )


class Changed(GraderError):
    """Nothing was changed: someone else changed this in the meantime. Read it again, then retry."""

    code = "changed_meanwhile"
    status = 412
    default_message = define_message(
        "error.changed",
        "Nothing was changed: someone else changed this in the meantime. Read it again, then retry.",
    )


def seen_by(now: str) -> str:
    """The state that the caller saw: `now` where it is among those of If-Match, or they sent `*`.

    Raises MatchMissing without one; what comes back is the first one named where `now` is not among them.
    """
    header = request.headers.get("If-Match")
    if header is None or not header.strip():
        raise MatchMissing
    if header.strip() == "*":
        return now
    tags = [one.strip().removeprefix("W/").strip('"') for one in header.split(",")]
    return now if now in tags else tags[0][:100] or "-"


def require_seen(now: str) -> None:
    """Go on where the caller saw the state of now. Raises MatchMissing, Changed."""
    if seen_by(now) != now:
        raise Changed


def tag_of(value: BaseModel) -> str:
    """The tag of a thing that has no number for its states."""
    return hashlib.sha256(value.model_dump_json().encode()).hexdigest()[:32]


def not_modified(tag: str) -> bool:
    """Whether the caller has this already."""
    return request.if_none_match.contains_weak(tag)
