"""The web app: pages, API and webhooks. `create_app` is its only entrance."""

from __future__ import annotations

from typing import Any

from flask import request
from flask_bootstrap import Bootstrap5
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address
from flask_openapi3 import OpenAPI
from flask_openapi3.models import Info

from app import (
    api,
    classes,
    errors,
    flags,
    given_up,
    operations,
    pages,
    provenance,
    render,
    security,
    sign_in,
    tabs,
    tokens,
    trials,
    webhooks,
    who,
)
from app.expecting import Expecting
from app.language import translate
from app.live import TITLES
from app.services import Services
from grading import logs

__all__ = ["Services", "create_app"]

SIGN_INS = "300 per minute"
"""For one address; a whole class may sit behind it. Each account has its own, lower bound."""
SCHEME: dict[str, Any] = {"token": {"type": "http", "scheme": "bearer"}}


def create_app(services: Services) -> OpenAPI:
    """A Flask app that works with these services."""
    app = OpenAPI(
        __name__,
        info=Info(title="Grader", version="1"),
        security_schemes=SCHEME,
        doc_ui=False,
        validation_error_callback=api.invalid,
    )
    app.extensions["grader"] = services
    app.extensions["grader-expecting"] = Expecting(services.dispatch)
    app.config.update(BOOTSTRAP_SERVE_LOCAL=True)
    operations.add_metrics(app, services)
    app.before_request(_about)
    errors.handle_errors(app)
    csrf = security.secure(app, services)
    who.load_users(app)
    Bootstrap5(app)
    translate(app)
    app.context_processor(who.context)
    app.jinja_env.filters.update(
        markdown=render.markdown, finding=render.finding, suggestion=render.suggestion
    )
    app.jinja_env.globals.update(
        stage_titles=TITLES,
        can=who.can,
        provenance_rows=provenance.report_rows,
        listed_tests=trials.listed_tests,
        said=trials.said,
        run_notes=trials.run_notes,
        flag_notes=flags.flag_notes,
        course_tabs=tabs.course_tabs,
        assignment_tabs=tabs.assignment_tabs,
    )
    for blueprint in (
        pages.pages,
        sign_in.pages,
        tokens.pages,
        classes.pages,
        given_up.pages,
        operations.pages,
    ):
        app.register_blueprint(blueprint)
    app.register_blueprint(webhooks.endpoints)
    app.register_api(api.api)
    csrf.exempt(api.api)
    csrf.exempt(webhooks.endpoints)
    _limit(app, services)
    return app


def _about() -> None:
    """What is logged during a request is about the hand-in in its address, if there is one."""
    given = request.view_args or {}
    logs.begin(submission=str(given.get("submission_id") or given.get("id") or "")[:32])


def _limit(app: OpenAPI, services: Services) -> None:
    """Bound how often somebody may try passwords (per address) and upload (per person)."""
    limiter = Limiter(get_remote_address, app=app, storage_uri="memory://", strategy="moving-window")
    uploads = f"{services.config.server.uploads_per_minute} per minute"
    per_view = {
        "sign_in.enter": (SIGN_INS, get_remote_address),
        # for the person, however many tokens they make
        "api.submit": (uploads, lambda: f"user:{who.bearer().user_id}"),
        "pages.hand_in": (uploads, lambda: f"user:{who.actor().user_id}"),
        "classes.upload": (uploads, lambda: f"user:{who.actor().user_id}"),
    }
    for endpoint, (limit, key) in per_view.items():
        limited: Any = limiter.limit(limit, key_func=key)(app.view_functions[endpoint])
        app.view_functions[endpoint] = limited
