"""The blueprint of the API under /api/v1: all resources, and how often a person may send requests."""

from __future__ import annotations

import time
from typing import Any

from flask import Blueprint, Flask, Response, jsonify, request
from flask.blueprints import BlueprintSetupState
from flask_limiter import Limiter
from redis.exceptions import RedisError

from app.api import openapi
from app.api.framework import handler, remember_keys
from app.api.resources import (
    assignments,
    courses,
    events,
    exports,
    extensions,
    grades,
    groups,
    guarantees,
    machines,
    material,
    me,
    platforms,
    regrades,
    rosters,
    rubrics,
    submissions,
    users,
)
from app.api.routes import PREFIX, ROUTES
from app.web import auth
from app.web.security import without_token
from app.web.services import Services

RESOURCES = (
    submissions, courses, rosters, assignments, rubrics, material, grades, regrades, guarantees, exports,
    machines, users, events, extensions, groups, platforms, me,
)  # fmt: skip
"""Importing them filled the table of routes."""


api = Blueprint("api", __name__, url_prefix=PREFIX)
without_token(api)


@api.get("/openapi.json")
def description() -> Response:
    """This description."""
    return jsonify(openapi.document())


@api.record_once
def _install(state: BlueprintSetupState) -> None:
    """Add all routes of the table."""
    for route in ROUTES:
        state.add_url_rule(route.rule, route.name, handler(route), methods=[route.method])
    remember_keys(state.app)


def limit(app: Flask, limiter: Limiter, services: Services) -> None:
    """Bound all routes of the API together, and submissions by themselves."""
    server = services.config.server
    every = limiter.shared_limit(f"{server.api_per_minute} per minute", scope="api", key_func=_person)
    uploads = limiter.limit(f"{server.uploads_per_minute} per minute", key_func=_person)
    for endpoint in [one for one in app.view_functions if one.startswith("api.")]:
        if endpoint != "api.description":
            view: Any = every(app.view_functions[endpoint])
            app.view_functions[endpoint] = uploads(view) if endpoint == "api.submit" else view

    def tell(response: Response) -> Response:
        if (request.endpoint or "").startswith("api."):
            _tell(limiter, response)
        return response

    app.after_request(tell)


def _person() -> str:
    return f"user:{auth.bearer().user_id}"


def _tell(limiter: Limiter, response: Response) -> None:
    """The fields of the IETF's draft, for the limit that is nearest."""
    now = limiter.current_limit
    if now is None:
        return
    name = "api" if now.shared else "uploads"
    whole = now.limit.get_expiry()
    try:
        left = min(whole, max(0, now.reset_at - int(time.time())))
        remaining = 0 if now.breached else max(0, now.remaining)
    except (RedisError, OSError):  # it went away since the request was counted
        left, remaining = whole, 0 if now.breached else 1
    response.headers["RateLimit-Policy"] = f'"{name}";q={now.limit.amount};w={whole}'
    response.headers["RateLimit"] = f'"{name}";r={remaining};t={left}'
    if response.status_code == 429:
        response.headers["Retry-After"] = str(max(1, left))
