"""The id of a request: in the header of its answer, in an error's text, and in every log line meanwhile."""

from __future__ import annotations

import re
import uuid

from flask import Flask, Response, g, request

from grading.shared import telemetry

HEADER = "X-Request-ID"
_WELL_FORMED = re.compile(r"[!-~]{1,100}")


def identify_requests(app: Flask) -> None:
    """Give every request an id."""
    app.before_request(_begin)
    app.after_request(_send)


def request_id() -> str:
    """The id that the caller sent, where it is well-formed, else a new one."""
    if "request_id" not in g:
        sent = request.headers.get(HEADER, "")
        g.request_id = sent if _WELL_FORMED.fullmatch(sent) else uuid.uuid4().hex
    return str(g.request_id)


def _begin() -> None:
    """What is logged during a request is about it, and about the submission in its address."""
    view_args = request.view_args or {}
    submission = str(view_args.get("submission_id") or view_args.get("id") or "")[:32]
    telemetry.begin(request=request_id(), submission=submission)


def _send(response: Response) -> Response:
    response.headers[HEADER] = request_id()
    return response
