"""The HTTP API under /api/v1: all rooms, put into an app."""

from __future__ import annotations

from flask import Blueprint, Flask, Response, jsonify

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

ROOMS = (submissions, courses, rosters, assignments, rubrics, grades, regrades, exports, machines, me)
"""Importing them filled the table of routes."""


def install(app: Flask) -> Blueprint:
    """Add the API to an app; says which blueprint it is."""
    api = Blueprint("api", __name__, url_prefix=PREFIX)
    for route in ROUTES:
        api.add_url_rule(route.rule, route.name, handler(route), methods=[route.method])
    api.add_url_rule("/openapi.json", "description", description)
    app.register_blueprint(api)
    remember_keys(app)
    return api


def description() -> Response:
    """This description."""
    return jsonify(openapi.document())
