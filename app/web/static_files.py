"""Addresses of static files name their content, so that browsers keep a file and never ask for it again.

A file is read once a process, as templates are: a changed one has its new address after a restart. Whoever
asks for other content than is here, as beside an older or a newer version of the web app, is answered with
this one, and asks again next time.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from flask import Flask, Response, current_app, request

ENDPOINTS = frozenset({"static", "bootstrap.static"})
VERSION = "v"
"""The argument of an address that names the content."""
KEEP = "public, max-age=31536000, immutable"


def name_by_content(app: Flask) -> None:
    """Let addresses of static files have their version, and let browsers keep what is asked for by it."""
    app.url_defaults(_add_version)
    app.after_request(_let_keep)


def _add_version(endpoint: str, values: dict[str, Any]) -> None:
    if endpoint in ENDPOINTS and (version := _version_of(endpoint, str(values["filename"]))):
        values.setdefault(VERSION, version)


def _let_keep(response: Response) -> Response:
    found = response.status_code in (200, 304)
    if found and request.endpoint in ENDPOINTS and (asked := request.args.get(VERSION)):
        name = (request.view_args or {})["filename"]  # inside of the folder, or it would not be found
        if asked == _version_of(request.endpoint, name):
            response.headers["Cache-Control"] = KEEP
    return response


def _version_of(endpoint: str, name: str) -> str:
    blueprint = endpoint.rpartition(".")[0]
    owner = current_app.blueprints[blueprint] if blueprint else current_app
    return _version(Path(owner.static_folder or "") / name)


@lru_cache(maxsize=1024)
def _version(path: Path) -> str:
    """A name for the content of a file; none where there is no such file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.is_file() else ""
