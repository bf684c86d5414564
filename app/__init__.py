"""The web app: pages, API and webhooks. `create_app` is its only entrance."""

from __future__ import annotations

from typing import Any

from flask import Flask, request
from flask_bootstrap import Bootstrap5
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address

from app import navigation
from app.accounts import admin, erasure, profile, sign_in, tokens
from app.api import blueprint as api_rooms
from app.api import docs_page as api_help
from app.api import rate_limits as api_limits
from app.assignments import views
from app.assignments.editor import files, proposals, rubric, task, versions
from app.courses import extensions, groups, roster
from app.courses import views as courses
from app.experiments import dry_runs, examples
from app.gradebook import csv_import, exports
from app.gradebook import views as gradebook
from app.home import views as home
from app.lti import admin as lti_platforms
from app.lti import course as lti_course
from app.lti import deep_linking as lti_choosing
from app.lti import launch as lti
from app.lti import registration as lti_registering
from app.operations import audit, deliveries, failed_submissions, machine_texts, webhook_secrets
from app.operations import views as operations
from app.reports import adjustments, comments, executions, flags, provenance, result
from app.reports.points import level_said
from app.results import views as results
from app.review import class_actions, comment_bank, edits, parts, regrade_requests, second_marking
from app.review import views as review
from app.statistics import views as statistics
from app.submissions import (
    class_upload,
    mail_preferences,
    status_poll,
    submit,  # noqa: F401  # its views are in the blueprint of `pages`
)
from app.submissions import views as pages
from app.web import auth, dates, errors, markdown, security, tabs, template_helpers, viewing
from app.web.check_messages import said as in_words
from app.web.compiled import Compiled
from app.web.eta import Expecting
from app.web.i18n import translate
from app.web.services import Services
from app.webhooks import views as webhooks
from grading.shared import logs
from grading.store.integrations.connect import connect_platforms

__all__ = ["Services", "create_app"]

SIGN_INS = "300 per minute"
"""For one address; a whole class may sit behind it. Each account has its own, lower bound."""
LAUNCHES = "1200 per minute"
"""For one address; several classes may sit behind it."""
PASSWORDS = "20 per minute"
"""For one person who changes their password."""
PRINTS = "20 per minute"
"""PDFs for one person: each takes a turn, and whoever waits for theirs holds a thread."""


def create_app(services: Services) -> Flask:
    """A Flask app that works with these services."""
    connect_platforms()
    app = Flask(__name__)
    app.jinja_environment = Compiled  # type: ignore[assignment]  # whose own class it is
    app.extensions["grader"] = services
    app.extensions["grader-expecting"] = Expecting(services.dispatch)
    app.config.update(BOOTSTRAP_SERVE_LOCAL=True)
    operations.add_metrics(app, services)
    app.before_request(_about)
    errors.handle_errors(app)
    csrf = security.secure(app, services)
    auth.load_users(app)
    status_poll.watch(app, services.store, services.dispatch)
    viewing.watch(app, services.store)
    result.remember(app)
    parts.remember(app)
    home.remember(app)
    proposals.remember(app)
    Bootstrap5(app)
    translate(app)
    template_helpers.quicken(app)
    _tell_templates(app)
    _add_pages(app)
    app.register_blueprint(webhooks.endpoints)
    csrf.exempt(api_rooms.install(app))
    csrf.exempt(webhooks.endpoints)
    for entrance in ("login", "launch"):  # platforms send browsers there; both have a state of their own
        csrf.exempt(app.view_functions[f"lti.{entrance}"])
    _limit(app, services)
    return app


def _tell_templates(app: Flask) -> None:
    """What every template can say and ask."""
    app.context_processor(auth.context)
    app.jinja_env.filters.update(
        markdown=markdown.markdown,
        finding=comments.finding,
        suggestion=comments.suggestion,
        seen=markdown.seen,
    )
    app.jinja_env.globals.update(
        stage_titles=navigation.StageTitles(),
        can=auth.can,
        provenance_rows=provenance.report_rows,
        listed_tests=executions.listed_tests,
        said=executions.said,
        in_words=in_words,
        level_said=level_said,
        run_notes=executions.run_notes,
        flag_notes=flags.flag_notes,
        adjusted_lines=adjustments.lines,
        adjusted_sum=adjustments.summed,
        adjusted_offer=adjustments.offered_words,
        course_tabs=tabs.course_tabs,
        assignment_tabs=tabs.assignment_tabs,
        main_ways=navigation.main_ways,
        machine_word=machine_texts.machine_word,
        machine_notes=machine_texts.machine_notes,
        guest_words=machine_texts.guests,
        operating_tabs=navigation.operating_tabs,
        exists=app.view_functions.__contains__,
        open_requests=regrade_requests.open_requests,
        relative=dates.relative,
        endpoints=views.endpoints,
    )


def _add_pages(app: Flask) -> None:
    """The rooms people meet."""
    for blueprint in (
        pages.pages,
        home.pages,
        views.pages,
        rubric.pages,
        files.pages,
        proposals.pages,
        task.pages,
        versions.pages,
        dry_runs.pages,
        extensions.pages,
        groups.pages,
        sign_in.pages,
        tokens.pages,
        api_help.pages,
        class_upload.pages,
        failed_submissions.pages,
        operations.pages,
        deliveries.pages,
        webhook_secrets.pages,
        navigation.pages,
        status_poll.pages,
        mail_preferences.pages,
        gradebook.pages,
        exports.pages,
        csv_import.pages,
        erasure.pages,
        statistics.pages,
        examples.pages,
        results.pages,
        regrade_requests.pages,
        courses.pages,
        roster.pages,
        admin.pages,
        profile.pages,
        audit.pages,
        review.pages,
        edits.pages,
        class_actions.pages,
        second_marking.pages,
        comment_bank.pages,
    ):
        app.register_blueprint(blueprint)
    for of_platforms in (lti, lti_choosing, lti_course, lti_platforms, lti_registering):
        app.register_blueprint(of_platforms.pages)


def _about() -> None:
    """What is logged during a request is about the hand-in in its address, if there is one."""
    given = request.view_args or {}
    logs.begin(submission=str(given.get("submission_id") or given.get("id") or "")[:32])


def _limit(app: Flask, services: Services) -> None:
    """Bound how often somebody may try passwords (per address) and upload (per person)."""
    limiter = Limiter(get_remote_address, app=app, storage_uri="memory://", strategy="moving-window")
    uploads = f"{services.config.server.uploads_per_minute} per minute"
    per_view = {
        "sign_in.enter": (SIGN_INS, get_remote_address),
        "lti.launch": (LAUNCHES, get_remote_address),
        "lti.login": (LAUNCHES, get_remote_address),
        "lti_registering.register": (PASSWORDS, get_remote_address),
        "sign_in.follow": (SIGN_INS, get_remote_address),
        "sign_in.set_password": (SIGN_INS, get_remote_address),
        "account.password": (PASSWORDS, lambda: f"user:{auth.actor().user_id}"),
        "results.pdf": (PRINTS, lambda: f"user:{auth.actor().user_id}"),
        "people.preview": (uploads, lambda: f"user:{auth.actor().user_id}"),
        "people.confirm": (uploads, lambda: f"user:{auth.actor().user_id}"),
        "submissions.hand_in": (uploads, lambda: f"user:{auth.actor().user_id}"),
        "classes.upload": (uploads, lambda: f"user:{auth.actor().user_id}"),
    }
    for endpoint, (limit, key) in per_view.items():
        limited: Any = limiter.limit(limit, key_func=key)(app.view_functions[endpoint])
        app.view_functions[endpoint] = limited
    api_limits.limit(app, limiter, services)
    # which would look for limits of everything else at each request
    limiter.request_filter(lambda: request.endpoint not in per_view and request.blueprint != "api")
