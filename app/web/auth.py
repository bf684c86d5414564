"""Who asks and what they may do: the session of a page, the bearer token of an API call."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from flask import Flask, current_app, g, render_template, request, session, url_for
from flask_login import LoginManager, UserMixin, current_user, login_user, user_logged_in
from sqlalchemy.orm import Session

from app.web.i18n import later as N_
from app.web.services import services
from grading.checks.visibility import for_student
from grading.domain.errors import Forbidden, NotFound, NotSignedIn
from grading.domain.messages import define_message
from grading.domain.permissions import Actor, Subject, may
from grading.domain.report import Report
from grading.domain.shared_messages import NO_SUCH_COURSE, NO_SUCH_SUBMISSION
from grading.store.accounts import credentials, sessions, single_sign_on, users
from grading.store.accounts.sessions import SignOnOrigin
from grading.store.accounts.users import SignedInUser
from grading.store.courses import invitations, roster
from grading.store.views.submission import SubmissionView

TOKEN_NEEDED = define_message("sign_in.token_needed", "Send a token: Authorization: Bearer grd_….")
TOKEN_UNKNOWN = define_message(
    "sign_in.token_unknown",
    "The token is unknown, expired or revoked. Create a new one on the page API tokens.",
)

SCOPE_TEXTS: Mapping[str, str] = {
    "submit": N_("submit"),
    "read": N_("read status and results"),
    "grade": N_("change, release and regrade"),
    "manage": N_("manage courses, people, assignments and rubrics"),
    "chat": N_("use the models through the gateway, with lower priority than grading"),
    "admin": N_("administer"),
}
"""What a scope lets a program do."""


@dataclass(frozen=True)
class BrowserSession:
    """What the cookie says of a session; whether it is open, the database says."""

    user_id: int
    stamp: str
    id: str


class SignedIn(UserMixin):
    """A signed-in user as Flask-Login keeps it for a request."""

    def __init__(self, found: SignedInUser, session_id: str) -> None:
        self.name = found.name
        self.actor = found.actor
        self.open_requests = found.open_requests
        self.stamp = found.stamp
        self.session_id = session_id
        self.id = f"{found.actor.user_id}:{found.stamp}:{session_id}"


def load_users(app: Flask) -> None:
    """Install Flask-Login; a session ends with signing out, a new password, and when its user is disabled."""
    manager = LoginManager()
    manager.init_app(app, add_context_processor=False)  # `context` also works while the database is away
    manager.session_protection = None
    manager.user_loader(_load)
    user_logged_in.connect(_give_token, app)


def _give_token(_app: Flask, user: SignedIn) -> None:
    """Let forms of this session say whose they are; a token that already does stays."""
    whose = f"{user.actor.user_id}."  # as `kept_forms` reads it
    if not session.get("csrf_token", "").startswith(whose):
        session["csrf_token"] = whose + secrets.token_hex(20)


def session_of(cookie: str) -> BrowserSession:
    """What a session's cookie says; of nobody where it says nothing of the kind."""
    number, stamp, session_id = (*cookie.split(":"), "", "")[:3]
    valid = number.isdecimal() and len(number) < 10
    return BrowserSession(int(number) if valid else 0, stamp, session_id)


def _load(cookie: str) -> SignedIn | None:
    loaded = session_of(cookie)
    with services().store.read_autocommit() as store:
        found = users.load_reader_of_session(store, loaded.user_id, loaded.id)
    if found is None or found.stamp != loaded.stamp:
        return None
    if found.language:
        g.language = found.language
    actor = limited(found.actor)
    if actor is None:
        return None
    fewer = actor is not found.actor
    found = replace(found, actor=actor, open_requests=0 if fewer else found.open_requests)
    return SignedIn(found, loaded.id)


def limited(who: Actor) -> Actor | None:
    """The reader as this request may serve them: in a platform's frame it is less. Nothing: nobody."""
    limit = current_app.extensions.get("grader-limited")
    return who if limit is None else cast("Actor | None", limit(who))


def begin_session(user_id: int, origin: SignOnOrigin | None = None) -> SignedIn:
    """Let somebody be signed in from now on; the session this browser had ends.

    `login_user` puts it into the cookie. Raises NotSignedIn, and AccountRefused for a locked identity.
    """
    with services().store.write() as store:
        if origin is not None:  # a reset, which ends all sessions, may have come after the sign-in
            single_sign_on.require_open(store, user_id, origin.identity_id)
        found = users.load_reader(store, user_id)
        if found is None:
            raise NotSignedIn
        sessions.end_session(store, session_of(str(session.get("_user_id", ""))).id)
        return SignedIn(found, sessions.create_session(store, user_id, origin))


def go_on(reader: SignedIn) -> None:
    """Let the session of this browser go on with the account's new stamp, which copies of its cookie lack.

    It begins no session: neither its age nor the sign-in that it began with changes. Raises NotSignedIn.
    """
    with services().store.read_autocommit() as store:
        found = users.load_reader_of_session(store, reader.actor.user_id, reader.session_id)
    if found is None:
        raise NotSignedIn
    login_user(SignedIn(found, reader.session_id))


def end_session() -> None:
    """End the session of this browser, also for copies of its cookie."""
    with services().store.write() as store:
        sessions.end_session(store, session_of(str(session.get("_user_id", ""))).id)


def user() -> SignedIn:
    """The signed-in user. Raises NotSignedIn."""
    if not current_user.is_authenticated:
        raise NotSignedIn
    return cast(SignedIn, current_user)


def actor() -> Actor:
    """Who asks for a page. Raises NotSignedIn."""
    return user().actor


def bearer() -> Actor:
    """Who asks by API: the owner of the token. Raises NotSignedIn."""
    if "bearer" not in g:
        g.bearer = _bearer()
    return cast(Actor, g.bearer)


def _bearer() -> Actor:
    kind, _, secret = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer":
        raise NotSignedIn(TOKEN_NEEDED)
    with services().store.read() as store:
        found = users.verify_token(store, secret.strip())
    if found is None:
        raise NotSignedIn(TOKEN_UNKNOWN)
    return found


def require(who: Actor, action: str, subject: Subject | None = None) -> None:
    """Go on, or raise Forbidden."""
    if not may(who, action, subject or Subject()):
        raise Forbidden


def subject_of(view: SubmissionView) -> Subject:
    """A submission as `may` sees it."""
    return Subject(view.course_id, view.student_id, view.released, view.members)


def report_for(who: Actor, view: SubmissionView) -> Report | None:
    """The report as this reader may see it: nothing before the release, hidden tests for staff only."""
    if view.grade is None or not may(who, "score.see", subject_of(view)):
        return None
    if may(who, "tests.see_all", Subject(view.course_id)):
        return view.grade.report
    return for_student(view.grade.report)


def knows_course(who: Actor, course_id: int) -> bool:
    """Whether the course exists for this caller."""
    return who.administrator or course_id in who.roles


def in_course(action: str, course_id: int) -> Actor:
    """Who asks, if they may do this in the course. Raises NotFound or, where they know of it, Forbidden."""
    asking = actor()
    if not knows_course(asking, course_id):
        raise NotFound(NO_SUCH_COURSE)
    require(asking, action, Subject(course_id))
    return asking


def require_seen(who: Actor, view: SubmissionView) -> None:
    """Go on, or raise NotFound, so that nobody learns which submissions others have."""
    if not may(who, "submission.see", subject_of(view)):
        raise NotFound(NO_SUCH_SUBMISSION)


def can(
    who: Actor,
    action: str,
    course_id: int,
    owner_id: int | None = None,
    released: bool = False,
    members: tuple[int, ...] = (),
) -> bool:
    """`may` for templates."""
    return may(who, action, Subject(course_id, owner_id, released, members))


def context() -> dict[str, Any]:
    """What every template knows of the reader."""
    users = not g.get("broken") and current_user.is_authenticated
    return {"reader": current_user if users else None, "nonce": g.get("nonce", "")}


def require_passwords(store: Session, user_ids: Sequence[int]) -> None:
    """Go on if passwords of Grader work for all of these users, or raise LocalAccountsOff."""
    on = services().config.sign_on.local_accounts
    credentials.require_local(store, user_ids, local_accounts=on)


def password_link(secret: str) -> str:
    """The link for people, by the address in the configuration, never by what a request says."""
    base = services().config.server.public_url.rstrip("/")
    return f"{base}{url_for('sign_in.follow', secret=secret)}"


def show_password_link(
    session: Session, user_id: int, actor: Actor, back: str, course_id: int | None = None
) -> str:
    """Make a link for somebody and show it; one that is made in a course leaves earlier links valid.

    Raises LocalAccountsOff.
    """
    require_passwords(session, [user_id])
    made = invitations.create_links(
        session, [user_id], actor.name, actor.user_id, course_id, replace=course_id is None
    )
    person = roster.load_person(session, user_id, "")
    return render_template(
        "web/password_link.html", person=person, link=password_link(made[user_id]), back=back
    )
