"""Canvas section of a course's page: links, scores that failed or differ, refused attempts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.store.integrations.canvas import links
from grading.store.integrations.canvas.tables import CanvasAttempt, CanvasLink, CanvasScore
from grading.store.tables import Assignment, User

MOST = 200


@dataclass(frozen=True)
class Score:
    """A score that failed, or that differs in Canvas; in Canvas' points."""

    link_id: int
    user_id: int
    name: str
    title: str
    error: str
    dead: bool
    ours: float | None
    theirs: float | None
    differs: bool


@dataclass(frozen=True)
class Refused:
    """An attempt in Canvas that could not become a submission."""

    name: str
    title: str
    attempt: int
    error: str


@dataclass(frozen=True)
class CoursePage:
    """What the section shows."""

    links: tuple[links.LinkEntry, ...]
    scores: tuple[Score, ...]
    refused: tuple[Refused, ...]

    @property
    def linked(self) -> bool:
        """Whether an assignment of the course is linked."""
        return bool(self.links)


def load_course_page(session: Session, course_id: int) -> CoursePage:
    """Load the section in a constant number of queries; in one for a course without links."""
    found = tuple(links.list_links(session, course_id))
    if not found:
        return CoursePage((), (), ())
    return CoursePage(found, _scores(session, course_id), _refused(session, course_id))


def _scores(session: Session, course_id: int) -> tuple[Score, ...]:
    query = (
        select(CanvasScore, User.name, Assignment.title)
        .join(User, User.id == CanvasScore.user_id)
        .join(CanvasLink, CanvasLink.id == CanvasScore.link_id)
        .join(Assignment, Assignment.id == CanvasLink.assignment_id)
        .where(Assignment.course_id == course_id, CanvasLink.ended_at.is_(None))
        .where((CanvasScore.error != "") | CanvasScore.differs_at.is_not(None))
        .order_by(User.name, CanvasScore.user_id, CanvasScore.link_id)
        .limit(MOST)
    )
    return tuple(
        Score(
            one.link_id, one.user_id, name, title, one.error, one.dead, one.points, one.theirs,
            one.differs_at is not None,
        )
        for one, name, title in session.execute(query)
    )  # fmt: skip


def _refused(session: Session, course_id: int) -> tuple[Refused, ...]:
    query = (
        select(User.name, Assignment.title, CanvasAttempt.attempt, CanvasAttempt.error)
        .join(User, User.id == CanvasAttempt.user_id)
        .join(CanvasLink, CanvasLink.id == CanvasAttempt.link_id)
        .join(Assignment, Assignment.id == CanvasLink.assignment_id)
        .where(Assignment.course_id == course_id, CanvasLink.ended_at.is_(None))
        .where(CanvasAttempt.error != "")
        .order_by(CanvasAttempt.at.desc(), User.name)
        .limit(MOST)
    )
    return tuple(Refused(*row) for row in session.execute(query))


def filter_of_course(
    session: Session, course_id: int, pairs: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Those of these links and students that belong to the course and have a score."""
    query = select(CanvasScore.link_id, CanvasScore.user_id)
    query = query.join(CanvasLink, CanvasLink.id == CanvasScore.link_id)
    query = query.join(Assignment, Assignment.id == CanvasLink.assignment_id)
    query = query.where(Assignment.course_id == course_id, CanvasLink.ended_at.is_(None))
    known = {(row[0], row[1]) for row in session.execute(query)}
    return [one for one in dict.fromkeys(pairs) if one in known]
