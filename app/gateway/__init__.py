"""The gateway: `/v1/chat/completions` and `/v1/models` over all machines, behind grading, for other tools.

An app of its own, in a process of its own; `create_gateway` is its only entrance.
"""

from __future__ import annotations

from flask import Flask

from app.gateway.views import endpoints
from app.model_requests import errors
from app.model_requests.connections import Door, Doors

__all__ = ["Door", "create_gateway"]


def create_gateway(door: Door) -> Flask:
    """A Flask app that lets gateway requests in by this door."""
    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = door.settings.max_body_kb * 1024
    app.extensions["gateway"] = Doors(door)
    errors.handle_errors(app)
    app.register_blueprint(endpoints)
    return app
