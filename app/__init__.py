"""The web app: pages, API and webhooks. `create_app` is its only entrance."""

from __future__ import annotations

from typing import Any

from flask import Flask, request
from flask_bootstrap import Bootstrap5
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address

from app import (
    account,
    adjusted,
    assignments,
    audit,
    authoring,
    authoring_files,
    authoring_proposals,
    authoring_task,
    authoring_versions,
    classes,
    comments,
    courses,
    deliveries,
    dry_runs,
    erasing,
    errors,
    examples,
    exports,
    extensions,
    flags,
    frame,
    given_up,
    gradebook,
    groups,
    handing_in,  # noqa: F401  # its views are in the blueprint of `pages`
    home,
    importing,
    lms_secrets,
    machine_words,
    mailing,
    markup,
    moments,
    operations,
    pages,
    people,
    provenance,
    regrades,
    results,
    review,
    review_changes,
    review_class,
    review_comments,
    review_marks,
    review_parts,
    security,
    sign_in,
    statistics,
    tabs,
    texts,
    tokens,
    trials,
    users,
    viewing,
    waiting,
    webhooks,
    who,
)
from app.api import help as api_help
from app.api import limits as api_limits
from app.api import rooms as api_rooms
from app.compiled import Compiled
from app.expecting import Expecting
from app.language import translate
from app.lti import admin as lti_platforms
from app.lti import choosing as lti_choosing
from app.lti import course as lti_course
from app.lti import entering as lti
from app.lti import registering as lti_registering
from app.points import level_said
from app.said import said as in_words
from app.services import Services
from grading.shared import logs

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
    app = Flask(__name__)
    app.jinja_environment = Compiled  # type: ignore[assignment]  # whose own class it is
    app.extensions["grader"] = services
    app.extensions["grader-expecting"] = Expecting(services.dispatch)
    app.config.update(BOOTSTRAP_SERVE_LOCAL=True)
    operations.add_metrics(app, services)
    app.before_request(_about)
    errors.handle_errors(app)
    csrf = security.secure(app, services)
    who.load_users(app)
    waiting.watch(app, services.store, services.dispatch)
    viewing.watch(app, services.store)
    results.remember(app)
    review_parts.remember(app)
    home.remember(app)
    authoring_proposals.remember(app)
    Bootstrap5(app)
    translate(app)
    texts.quicken(app)
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
    app.context_processor(who.context)
    app.jinja_env.filters.update(
        markdown=markup.markdown, finding=comments.finding, suggestion=comments.suggestion, seen=markup.seen
    )
    app.jinja_env.globals.update(
        stage_titles=frame.StageTitles(),
        can=who.can,
        provenance_rows=provenance.report_rows,
        listed_tests=trials.listed_tests,
        said=trials.said,
        in_words=in_words,
        level_said=level_said,
        run_notes=trials.run_notes,
        flag_notes=flags.flag_notes,
        adjusted_lines=adjusted.lines,
        adjusted_sum=adjusted.summed,
        adjusted_offer=adjusted.offered_words,
        course_tabs=tabs.course_tabs,
        assignment_tabs=tabs.assignment_tabs,
        main_ways=frame.main_ways,
        machine_word=machine_words.machine_word,
        machine_notes=machine_words.machine_notes,
        guest_words=machine_words.guests,
        operating_tabs=frame.operating_tabs,
        exists=app.view_functions.__contains__,
        open_requests=regrades.open_requests,
        relative=moments.relative,
        endpoints=assignments.endpoints,
    )


def _add_pages(app: Flask) -> None:
    """The rooms people meet."""
    for blueprint in (
        pages.pages,
        assignments.pages,
        authoring.pages,
        authoring_files.pages,
        authoring_proposals.pages,
        authoring_task.pages,
        authoring_versions.pages,
        dry_runs.pages,
        extensions.pages,
        groups.pages,
        sign_in.pages,
        tokens.pages,
        api_help.pages,
        classes.pages,
        given_up.pages,
        operations.pages,
        deliveries.pages,
        lms_secrets.pages,
        frame.pages,
        waiting.pages,
        mailing.pages,
        gradebook.pages,
        exports.pages,
        importing.pages,
        erasing.pages,
        statistics.pages,
        examples.pages,
        results.pages,
        regrades.pages,
        courses.pages,
        people.pages,
        users.pages,
        account.pages,
        audit.pages,
        review.pages,
        review_changes.pages,
        review_class.pages,
        review_marks.pages,
        review_comments.pages,
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
        "account.password": (PASSWORDS, lambda: f"user:{who.actor().user_id}"),
        "results.pdf": (PRINTS, lambda: f"user:{who.actor().user_id}"),
        "people.preview": (uploads, lambda: f"user:{who.actor().user_id}"),
        "people.confirm": (uploads, lambda: f"user:{who.actor().user_id}"),
        "pages.hand_in": (uploads, lambda: f"user:{who.actor().user_id}"),
        "classes.upload": (uploads, lambda: f"user:{who.actor().user_id}"),
    }
    for endpoint, (limit, key) in per_view.items():
        limited: Any = limiter.limit(limit, key_func=key)(app.view_functions[endpoint])
        app.view_functions[endpoint] = limited
    api_limits.limit(app, limiter, services)
    # which would look for limits of everything else at each request
    limiter.request_filter(lambda: request.endpoint not in per_view and request.blueprint != "api")
