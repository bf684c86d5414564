"""What stands around every page: the main menu, the tabs of operations, and the choice of language."""

from __future__ import annotations

from flask import Blueprint, jsonify, redirect, request, session, url_for
from flask import Response as Answer
from flask.blueprints import BlueprintSetupState
from flask_login import current_user
from flask_wtf.csrf import generate_csrf
from werkzeug.wrappers import Response

from app.web.auth import SignedIn
from app.web.frames import framed
from app.web.i18n import languages
from app.web.menus import Menu, Tab, assignment_tabs, course_tabs, current_navigation, trust_tabs
from app.web.security import safe_next
from app.web.services import services
from app.web.template_helpers import StageTitles
from grading.store.accounts import users

pages = Blueprint("frame", __name__)


@pages.record
def _add_globals(state: BlueprintSetupState) -> None:
    state.app.jinja_env.globals.update(
        stage_titles=StageTitles(),
        course_tabs=course_tabs,
        assignment_tabs=assignment_tabs,
        trust_tabs=trust_tabs,
    )


@pages.app_template_global()
def main_menu() -> list[Tab]:
    """That of the reader; nothing before they signed in."""
    reader = current_user
    if not isinstance(reader._get_current_object(), SignedIn):
        return []
    return current_navigation().tabs(Menu.SITE, reader.actor, framed=framed())


@pages.app_template_global()
def operations_tabs() -> list[Tab]:
    """Those of operations, for the reader."""
    return current_navigation().tabs(Menu.OPERATIONS, current_user.actor)


@pages.get("/session.json")
def session_state() -> Answer:
    """Who is signed in, and the token for forms: for scripts of pages whose session may have ended."""
    known = current_user.is_authenticated
    user, name = (current_user.actor.user_id, current_user.name) if known else (None, "")
    return jsonify(user=user, name=name, token=generate_csrf())


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
