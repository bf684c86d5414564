"""LTI section of a course's page: contexts, links, scores that failed or differ, attempts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Executable, bindparam, func, select
from sqlalchemy.orm import Session

from grading.store.database import literal_limit
from grading.store.integrations.lti.tables import (
    LtiContext,
    LtiDifference,
    LtiLink,
    LtiPlatform,
    LtiScore,
    LtiScoreAttempt,
)
from grading.store.tables import Assignment, User

TRIES = 50
MOST = 1000
HERE = Assignment.course_id == bindparam("course_id")


@dataclass(frozen=True)
class Context:
    """A course of a platform."""

    id: int
    platform: str
    title: str
    roster_at: datetime | None
    roster_error: str


@dataclass(frozen=True)
class Link:
    """A link with the state of its scores."""

    id: int
    assignment_id: int
    title: str
    sent: int
    failed: int
    compared_at: datetime | None
    compare_error: str


@dataclass(frozen=True)
class Score:
    """A score that failed, or that differs on the platform."""

    link_id: int
    user_id: int
    name: str
    title: str
    error: str = ""
    dead: bool = False
    ours: float | None = None
    theirs: float | None = None


@dataclass(frozen=True)
class Try:
    """An attempt to send a score."""

    at: datetime
    name: str
    title: str
    points: float | None
    status: int | None
    error: str


@dataclass(frozen=True)
class CoursePage:
    """What the section shows."""

    contexts: tuple[Context, ...]
    links: tuple[Link, ...]
    failed: tuple[Score, ...]
    different: tuple[Score, ...]
    tries: tuple[Try, ...]

    @property
    def linked(self) -> bool:
        """Whether the course is linked to a platform's."""
        return bool(self.contexts)


def list_contexts(session: Session, course_id: int) -> tuple[Context, ...]:
    """The platform courses that are linked to this course."""
    return tuple(Context(*row) for row in session.execute(_contexts(), {"course_id": course_id}))


def list_links(session: Session, course_id: int) -> tuple[Link, ...]:
    """The links of a course's assignments."""
    return tuple(Link(*row) for row in session.execute(_links(), {"course_id": course_id}))


@cache
def _contexts() -> Executable:
    one = LtiContext
    query = select(one.id, LtiPlatform.name, one.title, one.roster_at, one.roster_error)
    query = query.join(LtiPlatform, LtiPlatform.id == one.platform_id)
    return query.where(one.course_id == bindparam("course_id")).order_by(one.id)


def load_course_page(session: Session, course_id: int) -> CoursePage:
    """Load the section in a constant number of queries; in two for a course without links."""
    here, wanted = list_contexts(session, course_id), {"course_id": course_id}
    links = list_links(session, course_id)
    if not links:
        return CoursePage(here, (), (), (), ())
    return CoursePage(
        here,
        links,
        tuple(Score(*row) for row in session.execute(_failed(), wanted)),
        tuple(
            Score(link, user, name, title, ours=ours, theirs=theirs)
            for link, user, name, title, ours, theirs in session.execute(_different(), wanted)
        ),
        tuple(Try(*row) for row in session.execute(_tries(), wanted)),
    )


def list_problems(session: Session, course_id: int) -> int:
    """Scores of a course that failed or differ."""
    failed = select(func.count()).select_from(LtiScore).join(LtiLink, LtiLink.id == LtiScore.link_id)
    failed = failed.join(Assignment, Assignment.id == LtiLink.assignment_id)
    failed = failed.where(Assignment.course_id == course_id, LtiScore.error != "")
    different = select(func.count()).select_from(LtiDifference)
    different = different.join(LtiLink, LtiLink.id == LtiDifference.link_id)
    different = different.join(Assignment, Assignment.id == LtiLink.assignment_id)
    different = different.where(Assignment.course_id == course_id)
    return (session.scalar(failed) or 0) + (session.scalar(different) or 0)


@cache
def _links() -> Executable:
    sent = func.count(LtiScore.user_id).filter(LtiScore.sent_at.is_not(None))
    failed = func.count(LtiScore.user_id).filter(LtiScore.error != "")
    one = LtiLink
    columns = (one.id, one.assignment_id, Assignment.title, sent.label("sent"), failed.label("failed"))
    query = select(*columns, one.compared_at, one.compare_error)
    query = query.join(Assignment, Assignment.id == one.assignment_id)
    query = query.outerjoin(LtiScore, LtiScore.link_id == one.id)
    return query.where(HERE).group_by(one.id, Assignment.title).order_by(one.id)


@cache
def _failed() -> Any:
    one = LtiScore
    query = select(one.link_id, one.user_id, User.name, Assignment.title, one.error, one.dead)
    query = query.where(HERE, one.error != "").order_by(User.name, one.user_id, one.link_id)
    return _of_somebody(query, one).limit(literal_limit(MOST))


@cache
def _different() -> Any:
    one = LtiDifference
    query = select(one.link_id, one.user_id, User.name, Assignment.title, one.ours, one.theirs)
    query = query.where(HERE).order_by(User.name, one.user_id, one.link_id)
    return _of_somebody(query, one).limit(literal_limit(MOST))


@cache
def _tries() -> Any:
    one = LtiScoreAttempt
    query = select(one.at, User.name, Assignment.title, one.points, one.status, one.error)
    return _of_somebody(query.where(HERE).order_by(one.id.desc()), one).limit(literal_limit(TRIES))


def _of_somebody(query: Any, table: Any) -> Any:
    """Rows of a table with their student's name and their link's assignment."""
    return (
        query.join(User, User.id == table.user_id)
        .join(LtiLink, LtiLink.id == table.link_id)
        .join(Assignment, Assignment.id == LtiLink.assignment_id)
    )


def filter_of_course(
    session: Session, course_id: int, pairs: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Those of these links and students that belong to the course and have a score."""
    query = select(LtiScore.link_id, LtiScore.user_id).join(LtiLink, LtiLink.id == LtiScore.link_id)
    query = query.join(Assignment, Assignment.id == LtiLink.assignment_id)
    known = {(row[0], row[1]) for row in session.execute(query.where(Assignment.course_id == course_id))}
    return [one for one in dict.fromkeys(pairs) if one in known]
