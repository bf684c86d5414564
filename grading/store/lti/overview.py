"""What the page of a course says about its platform."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from grading.store.tables import (
    Assignment,
    LtiContext,
    LtiDifference,
    LtiLink,
    LtiPlatform,
    LtiScore,
    LtiTry,
    User,
)

TRIES = 50


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
    """A link and what became of its scores."""

    id: int
    assignment_id: int
    title: str
    told: int
    failed: int
    compared_at: datetime | None
    compare_error: str


@dataclass(frozen=True)
class Score:
    """Somebody's score that did not arrive, or that differs."""

    link_id: int
    user_id: int
    name: str
    title: str
    error: str = ""
    given_up: bool = False
    ours: float | None = None
    theirs: float | None = None


@dataclass(frozen=True)
class Try:
    """One try."""

    at: datetime
    name: str
    title: str
    points: float | None
    status: int | None
    error: str


@dataclass(frozen=True)
class Seen:
    """Everything of a course."""

    contexts: tuple[Context, ...]
    links: tuple[Link, ...]
    failed: tuple[Score, ...]
    different: tuple[Score, ...]
    tries: tuple[Try, ...]


def contexts(session: Session, course_id: int) -> tuple[Context, ...]:
    """The courses of platforms that are this one."""
    query = select(LtiContext, LtiPlatform.name).join(LtiPlatform, LtiPlatform.id == LtiContext.platform_id)
    query = query.where(LtiContext.course_id == course_id).order_by(LtiContext.id)
    return tuple(
        Context(row.id, name, row.title, row.roster_at, row.roster_error)
        for row, name in session.execute(query)
    )


def course(session: Session, course_id: int) -> Seen:
    """All of it, in a fixed number of queries."""
    return Seen(
        contexts(session, course_id),
        _links(session, course_id),
        _failed(session, course_id),
        _different(session, course_id),
        _tries(session, course_id),
    )


def problems(session: Session, course_id: int) -> int:
    """Scores of a course that did not arrive or differ."""
    failed = select(func.count()).select_from(LtiScore).join(LtiLink, LtiLink.id == LtiScore.link_id)
    failed = failed.join(Assignment, Assignment.id == LtiLink.assignment_id)
    failed = failed.where(Assignment.course_id == course_id, LtiScore.error != "")
    different = select(func.count()).select_from(LtiDifference)
    different = different.join(LtiLink, LtiLink.id == LtiDifference.link_id)
    different = different.join(Assignment, Assignment.id == LtiLink.assignment_id)
    different = different.where(Assignment.course_id == course_id)
    return (session.scalar(failed) or 0) + (session.scalar(different) or 0)


def _links(session: Session, course_id: int) -> tuple[Link, ...]:
    told = func.count(LtiScore.user_id).filter(LtiScore.told_at.is_not(None))
    failed = func.count(LtiScore.user_id).filter(LtiScore.error != "")
    query = (
        select(LtiLink, Assignment.title, told.label("told"), failed.label("failed"))
        .join(Assignment, Assignment.id == LtiLink.assignment_id)
        .outerjoin(LtiScore, LtiScore.link_id == LtiLink.id)
        .where(Assignment.course_id == course_id)
        .group_by(LtiLink.id, Assignment.title)
        .order_by(LtiLink.id)
    )
    return tuple(
        Link(one.id, one.assignment_id, title, told, failed, one.compared_at, one.compare_error)
        for one, title, told, failed in session.execute(query)
    )


def _failed(session: Session, course_id: int) -> tuple[Score, ...]:
    query = (
        select(LtiScore, User.name, Assignment.title)
        .join(User, User.id == LtiScore.user_id)
        .join(LtiLink, LtiLink.id == LtiScore.link_id)
        .join(Assignment, Assignment.id == LtiLink.assignment_id)
        .where(Assignment.course_id == course_id, LtiScore.error != "")
        .order_by(User.name, LtiScore.user_id, LtiScore.link_id)
        .limit(1000)
    )
    return tuple(
        Score(one.link_id, one.user_id, name, title, one.error, one.given_up)
        for one, name, title in session.execute(query)
    )


def _different(session: Session, course_id: int) -> tuple[Score, ...]:
    query = (
        select(LtiDifference, User.name, Assignment.title)
        .join(User, User.id == LtiDifference.user_id)
        .join(LtiLink, LtiLink.id == LtiDifference.link_id)
        .join(Assignment, Assignment.id == LtiLink.assignment_id)
        .where(Assignment.course_id == course_id)
        .order_by(User.name, LtiDifference.user_id, LtiDifference.link_id)
        .limit(1000)
    )
    return tuple(
        Score(one.link_id, one.user_id, name, title, ours=one.ours, theirs=one.theirs)
        for one, name, title in session.execute(query)
    )


def _tries(session: Session, course_id: int) -> tuple[Try, ...]:
    query = (
        select(LtiTry, User.name, Assignment.title)
        .join(User, User.id == LtiTry.user_id)
        .join(LtiLink, LtiLink.id == LtiTry.link_id)
        .join(Assignment, Assignment.id == LtiLink.assignment_id)
        .where(Assignment.course_id == course_id)
        .order_by(LtiTry.id.desc())
        .limit(TRIES)
    )
    return tuple(
        Try(one.at, name, title, one.points, one.status, one.error)
        for one, name, title in session.execute(query)
    )


def of_course(session: Session, course_id: int, pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those of these links and students that belong to the course and have a score."""
    query = select(LtiScore.link_id, LtiScore.user_id).join(LtiLink, LtiLink.id == LtiScore.link_id)
    query = query.join(Assignment, Assignment.id == LtiLink.assignment_id)
    known = {(row[0], row[1]) for row in session.execute(query.where(Assignment.course_id == course_id))}
    return [one for one in dict.fromkeys(pairs) if one in known]
