"""Who may ask what of the API: each route names one guard, which finds what it is about and asks `may`.

What somebody cannot know of is NotFound; what they know of and may not do is Forbidden. It is asked before
anything that was sent is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.review import views as review
from app.web import assignment_pages, auth
from grading.domain.errors import Forbidden, NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import RULES, Actor, Subject, may
from grading.domain.shared_messages import NO_SUCH_COURSE, NO_SUCH_REQUEST
from grading.store import tables
from grading.store.courses import courses, roster
from grading.store.experiments import dry_runs
from grading.store.views import regrade_requests

SCOPE_MISSING = define_message(
    "api.scope_missing",
    "This token lacks the scope %(names)s. Create a token with it on the page API tokens.",
)
NO_SUCH_DRY_RUN = define_message("api.no_such_dry_run", "This regrade does not exist.")


class ScopeMissing(Forbidden):
    """This token lacks a required scope. Create a token with it on the page API tokens."""

    code = "scope_missing"
    default_message = define_message(
        "error.scope_missing",
        "This token lacks a required scope. Create a token with it on the page API tokens.",
    )


@dataclass(frozen=True)
class Guard:
    """What a route is about (`find`, by the arguments of its address), and the scopes a token needs."""

    find: Callable[..., Any]
    scopes: frozenset[str]
    arguments: tuple[str, ...] = ()

    def require_scopes(self, actor: Actor) -> None:
        """Go on, or raise ScopeMissing."""
        held = actor.scopes or frozenset()
        missing = self.scopes - held
        if missing and "admin" not in held:
            names = " and ".join(f"'{one}'" for one in sorted(missing))
            raise ScopeMissing(SCOPE_MISSING(names=names))


def _scopes(action: str, *more: str) -> frozenset[str]:
    scope = RULES[action][0]
    return frozenset(filter(None, (scope, *more)))


def anybody(*scopes: str) -> Guard:
    """Whoever has a token of these scopes; the view asks for more."""
    return Guard(lambda _session, _actor: None, frozenset(scopes))


def allowed(action: str) -> Guard:
    """Who may do this whatever it is about."""

    def find(_session: Session, actor: Actor) -> None:
        auth.require(actor, action)

    return Guard(find, _scopes(action))


def of_course(action: str) -> Guard:
    """Of a course."""

    def find(session: Session, actor: Actor, course_id: int) -> tables.Course:
        if not auth.knows_course(actor, course_id):
            raise NotFound(NO_SUCH_COURSE)
        auth.require(actor, action, Subject(course_id))
        return courses.load_course(session, course_id)

    return Guard(find, _scopes(action), ("course_id",))


def of_member(action: str) -> Guard:
    """Of somebody in a course; what is found is the course."""
    course = of_course(action)

    def find(session: Session, actor: Actor, course_id: int, user_id: int) -> tables.Course:
        found: tables.Course = course.find(session, actor, course_id)
        roster.load_membership(session, course_id, user_id)
        return found

    return Guard(find, course.scopes, ("course_id", "user_id"))


def of_assignment(action: str) -> Guard:
    """Of an assignment that its reader sees."""

    def find(session: Session, actor: Actor, assignment_id: int) -> tables.Assignment:
        found = assignment_pages.load_visible(session, actor, assignment_id)
        auth.require(actor, action, Subject(found.course_id))
        return found

    return Guard(find, _scopes(action, "read"), ("assignment_id",))


def of_submission(action: str) -> Guard:
    """Of a submission."""

    def find(session: Session, actor: Actor, id: str) -> Any:
        return review.load_view(session, actor, id, action)

    return Guard(find, _scopes(action, "read"), ("id",))


def of_request(action: str) -> Guard:
    """Of a request for a regrade; who asked may see it, too."""

    def find(session: Session, actor: Actor, request_id: int) -> regrade_requests.Request:
        found = regrade_requests.load_request(session, request_id)
        own = found.student_id == actor.user_id and action in ("regrade.see", "regrade.ask")
        if not own and not may(actor, "regrade.see", Subject(found.course_id)):
            raise NotFound(NO_SUCH_REQUEST)
        if not own:
            auth.require(actor, action, Subject(found.course_id))
        return found

    return Guard(find, _scopes(action, "read"), ("request_id",))


def of_rerun(action: str) -> Guard:
    """Of a re-run, with its assignment."""

    def find(session: Session, actor: Actor, dry_run_id: str) -> tuple[tables.DryRun, tables.Assignment]:
        run = dry_runs.load_dry_run(session, dry_run_id)
        found = dry_runs.assignment_of(session, run)
        if run.purpose not in dry_runs.REASONS or not auth.knows_course(actor, found.course_id):
            raise NotFound(NO_SUCH_DRY_RUN)
        auth.require(actor, action, Subject(found.course_id))
        return run, found

    return Guard(find, _scopes(action, "read"), ("dry_run_id",))
