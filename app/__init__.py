"""The web app, with pages, API and webhooks, whose only entrance is `create_app`."""

from __future__ import annotations

from typing import Any

from flask import Flask
from flask_bootstrap import Bootstrap5

from app import (
    accounts,
    api,
    assignments,
    courses,
    experiments,
    gradebook,
    home,
    navigation,
    operations,
    reports,
    results,
    review,
    similarity,
    statistics,
    submissions,
    trust,
    webhooks,
)
from app.web import (
    auth,
    errors,
    eta,
    grade_view_audit,
    rate_limits,
    request_ids,
    security,
    static_files,
    template_helpers,
)
from app.web.i18n import translate
from app.web.menus import Navigation
from app.web.platform_pages import platform_pages
from app.web.services import Services
from grading.shared.plugin_messages import load_installed_messages

__all__ = ["Services", "create_app"]

PACKAGES = (
    reports, accounts, courses, assignments, submissions, results, review, experiments, gradebook, statistics,
    similarity, trust, operations, home, api, webhooks, navigation,
)  # fmt: skip
"""Each exports its blueprints, which bring routes, helpers of templates and what an app must remember, and
as `navigation` its entries of menus, if it has any."""


def create_app(services: Services) -> Flask:
    """A Flask app that works with these services."""
    app = Flask(__name__)
    app.extensions["grader"] = services
    app.extensions["grader-expecting"] = eta.Expecting(services.dispatch)
    app.config.update(BOOTSTRAP_SERVE_LOCAL=True)
    operations.add_metrics(app, services)
    request_ids.identify_requests(app)
    errors.handle_errors(app)
    security.secure(app, services)
    auth.load_users(app)
    grade_view_audit.watch(app, services.store)
    Bootstrap5(app)
    static_files.name_by_content(app)
    load_installed_messages()
    translate(app)
    template_helpers.install(app)
    packages: tuple[Any, ...] = (*PACKAGES, *platform_pages().values())
    for package in packages:
        for blueprint in package.blueprints:
            app.register_blueprint(blueprint)
    declared = (entry for package in packages for entry in getattr(package, "navigation", ()))
    app.extensions["grader-navigation"] = Navigation(declared)
    api.limit(app, rate_limits.limit_views(app, services), services)
    return app
