"""Who asks: the session of a page, or the bearer token of an API call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from flask import Flask, current_app, g, request
from flask_login import LoginManager, UserMixin, current_user
from sqlalchemy.orm import Session

from app.services import services
from grading.errors import Forbidden, NotFound, NotSignedIn
from grading.evidence.showing import for_student
from grading.may import Actor, Subject, may
from grading.outcome import Report
from grading.store import accounts, signed_in
from grading.store.signed_in import SignedInUser
from grading.store.views import SubmissionView


class SignedIn(UserMixin):
    """A signed-in user as Flask-Login keeps it for a request."""

    def __init__(self, found: SignedInUser) -> None:
        self.name = found.name
        self.actor = found.actor
        self.open_requests = found.open_requests
        self.stamp = found.stamp
        self.id = f"{found.actor.user_id}:{found.stamp}"


def load_users(app: Flask) -> None:
    """Install Flask-Login; a session ends when its user is disabled or gets a new password."""
    manager = LoginManager()
    manager.init_app(app, add_context_processor=False)  # `context` also works while the database is away
    manager.session_protection = None
    manager.user_loader(_load)


def _load(session_id: str) -> SignedIn | None:
    number, _, stamp = session_id.partition(":")
    if not number.isdecimal() or len(number) > 9:
        return None
    with services().store.look() as session:
        found = signed_in.find(session, int(number))
    if found is None or found.stamp != stamp:
        return None
    if found.language:
        g.language = found.language
    actor = limited(found.actor)
    if actor is None:
        return None
    fewer = actor is not found.actor
    return SignedIn(replace(found, actor=actor, open_requests=0 if fewer else found.open_requests))


def limited(who: Actor) -> Actor | None:
    """The reader as this request may serve them: in a platform's frame it is less. Nothing: nobody."""
    limit = current_app.extensions.get("grader-limited")
    return who if limit is None else cast("Actor | None", limit(who))


def signed_in_as(session: Session, user_id: int) -> SignedIn:
    """Who just gave their password. Raises NotSignedIn where they may not sign in any more."""
    found = signed_in.find(session, user_id)
    if found is None:
        raise NotSignedIn
    return SignedIn(found)


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
        raise NotSignedIn("Send a token: Authorization: Bearer grd_….")
    with services().store.read() as session:
        found = accounts.verify_token(session, secret.strip())
    if found is None:
        raise NotSignedIn("The token is unknown, expired or revoked. Make a new one on the page Tokens.")
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
        raise NotFound("There is no such course.")
    require(asking, action, Subject(course_id))
    return asking


def require_seen(who: Actor, view: SubmissionView) -> None:
    """Go on, or raise NotFound, so that nobody learns which submissions others have."""
    if not may(who, "submission.see", subject_of(view)):
        raise NotFound("There is no such submission.")


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
    signed_in = not g.get("broken") and current_user.is_authenticated
    return {"reader": current_user if signed_in else None, "nonce": g.get("nonce", "")}
