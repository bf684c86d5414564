"""What stands around every page: the main ways, those of operating, and the choice of language."""

from __future__ import annotations

from dataclasses import replace

from flask import Blueprint, current_app, redirect, request, session, url_for
from flask.blueprints import BlueprintSetupState
from flask_login import current_user
from werkzeug.wrappers import Response

from app.web.auth import SignedIn
from app.web.frames import framed
from app.web.i18n import gettext as _
from app.web.i18n import languages
from app.web.i18n import later as N_
from app.web.platform_pages import platform_pages
from app.web.security import safe_next
from app.web.services import services
from app.web.tabs import Tab, Way, assignment_tabs, course_tabs
from app.web.template_helpers import StageTitles, address
from grading.domain.permissions import Actor, may
from grading.store.accounts import users

pages = Blueprint("frame", __name__)


@pages.record
def _add_globals(state: BlueprintSetupState) -> None:
    state.app.jinja_env.globals.update(
        stage_titles=StageTitles(), course_tabs=course_tabs, assignment_tabs=assignment_tabs
    )


COURSES = frozenset(
    {
        "courses",
        "roster",
        "gradebook",
        "audit.course",
        "assignments",
        "statistics",
        "examples",
        "extensions",
        "groups",
        "class_upload",
    }
    | {"review", "class_actions", "second_marking"}
    | {"editor_rubric", "editor_task", "editor_files", "editor_versions", "editor_proposals"}
    | {"dry_runs"}
    | {"submissions.submission", "submissions.prompt", "submissions.receipt", "submissions.upload"}
    | {"submissions.submit_form", "submissions.submit"}
)
MAIN = (
    Way("home.home", N_("Home"), "tokens.own"),
    Way("courses.listing", N_("Courses"), "tokens.own", COURSES),
    Way("home.submissions", N_("Hand-ins"), "machines.see"),
    Way(
        "regrade_requests.listing", N_("Regrades"), "failed_submissions.see", frozenset({"regrade_requests"})
    ),
    Way("users.listing", N_("Accounts"), "administer", frozenset({"users"})),
    Way(
        "operations.overview",
        N_("Operations"),
        "machines.see",
        frozenset(
            {"operations", "audit.everything", "deliveries", "webhook_secrets"}
            | {"submissions.failed", "submissions.retry_failed"}
        ),
    ),
)
OPERATIONS = (
    Way("operations.overview", N_("Overview"), "machines.see"),
    Way("operations.machines", N_("Machines"), "machines.see"),
    Way("submissions.failed", N_("Not graded"), "failed_submissions.see"),
    Way("operations.messages", N_("Messages"), "administer"),
    Way("deliveries.list_deliveries", N_("Deliveries"), "administer", frozenset({"deliveries"})),
    Way("operations.tokens", N_("Tokens"), "administer"),
    Way("audit.everything", N_("Audit"), "administer"),
)


@pages.app_template_global()
def main_ways() -> list[Tab]:
    """Those of the reader; none before they signed in."""
    reader = current_user
    ways = MAIN[:2] if framed() else (*MAIN[:-1], _operations())
    return _ways(ways, reader.actor) if isinstance(reader._get_current_object(), SignedIn) else []


def _operations() -> Way:
    parts = (way.parts for way in _platforms())
    return replace(MAIN[-1], parts=MAIN[-1].parts.union(*parts))


@pages.app_template_global()
def operating_tabs() -> list[Tab]:
    """The pages of operating, for the reader."""
    *before, audit = OPERATIONS
    return _ways((*before, *_platforms(), audit), current_user.actor)


def _platforms() -> tuple[Way, ...]:
    return tuple(way for pages in platform_pages().values() for way in pages.operations)


def _ways(table: tuple[Way, ...], reader: Actor) -> list[Tab]:
    here, there_are = {request.blueprint, request.endpoint}, current_app.view_functions
    return [
        Tab(_(way.title), address(way.endpoint), way.endpoint in here or bool(here & way.parts))
        for way in table
        if way.endpoint in there_are and may(reader, way.action)
    ]


@pages.post("/language")
def language() -> Response:
    """Show pages in this language from now on, and go back to where the reader was."""
    wanted = request.form.get("language", "")
    if wanted in languages():
        session["language"] = wanted
        if current_user.is_authenticated:
            with services().store.write() as store:
                users.set_language(store, current_user.actor.user_id, wanted)
    return redirect(safe_next(request.form.get("next")) or url_for("home.home"), 303)


blueprints = (pages,)
