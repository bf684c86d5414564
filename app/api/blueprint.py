"""The HTTP API under /api/v1: all rooms, put into an app."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify
from flask.blueprints import BlueprintSetupState

from app.api import openapi
from app.api.framework import handler, remember_keys
from app.api.resources import (
    assignments,
    courses,
    exports,
    grades,
    machines,
    me,
    regrades,
    rosters,
    rubrics,
    submissions,
)
from app.api.routes import PREFIX, ROUTES
from app.web.security import without_token

ROOMS = (submissions, courses, rosters, assignments, rubrics, grades, regrades, exports, machines, me)
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
