"""The gateway: chats and models of OpenAI's API over all machines, behind grading, for other tools.

An app of its own, in a process of its own; `create_gateway` is its only entrance.
"""

from __future__ import annotations

from flask import Flask

from app.gateway.views import endpoints
from app.gateway_requests import errors
from app.gateway_requests.slots import GatewayServices, RequestSlots
from app.web import request_ids

__all__ = ["GatewayServices", "create_gateway"]


def create_gateway(gateway: GatewayServices) -> Flask:
    """A Flask app that serves gateway requests with these services."""
    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = gateway.settings.max_body_kb * 1024
    app.extensions["gateway"] = RequestSlots(gateway)
    request_ids.identify_requests(app)
    errors.handle_errors(app)
    app.register_blueprint(endpoints)
    return app
