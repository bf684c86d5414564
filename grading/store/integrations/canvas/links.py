"""Links between assignments of a Canvas and ours: creation, import of attempts, removal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from grading.documents import SubmittedFiles
from grading.domain.errors import Conflict, NotFound
from grading.domain.messages import define_message
from grading.integrations.canvas.values import Attempt, NotForTheBridge, Task
from grading.store import tables
from grading.store.accounts import users
from grading.store.audit import write_audit
from grading.store.database import Store, now
from grading.store.integrations.canvas import platform
from grading.store.integrations.canvas.platform import KIND
from grading.store.integrations.canvas.tables import (
    CanvasAttempt,
    CanvasCourse,
    CanvasLink,
    CanvasScore,
    CanvasScoreAttempt,
)
from grading.store.submissions import intake
from grading.store.submissions.intake import Accepted, IncomingSubmission
from grading.store.tables import Assignment, Course, Identity, Membership, Submission

NO_SUCH_LINK = define_message(
    "canvas_links.no_such_link", "Link %(link)s does not exist. To list links, run `grader canvas list`."
)
NOT_LINKABLE = define_message("canvas_links.not_linkable", "“%(title)s” cannot be linked: %(problem)s.")
LINKED_ALREADY = define_message(
    "canvas_links.linked_already",
    "It is already linked with another assignment. Unlink it first: grader canvas unlink %(link)s",
)
OTHER_COURSE = define_message(
    "canvas_links.other_course",
    "This Canvas course is linked with another course in Grader. Unlink its assignments first.",
)

WHOLE_EVERY = timedelta(days=1)
OVERLAP = timedelta(hours=1)
"""So long before the last import begins the next: clocks differ, and imports take a while."""


@dataclass(frozen=True)
class Link:
    """An assignment of a Canvas with ours."""

    id: int
    course_row: int
    connection: str
    canvas_course: str
    canvas_assignment: str
    course_id: int
    course: str
    assignment_id: int
    title: str
    points_possible: float | None

    @property
    def provider(self) -> str:
        """Provider of its users' identities."""
        return f"lms:{self.connection}"


@dataclass(frozen=True)
class LinkEntry:
    """A link with its state."""

    link: Link
    pulled_at: datetime | None
    compared_at: datetime | None
    errors: tuple[str, ...]
    imported: int
    refused: int
    sent: int
    failed: int
    differ: int


def _links(*where: Any) -> Any:
    """Live links with their course and assignment."""
    query = select(CanvasLink, CanvasCourse, Assignment, Course.slug)
    query = query.join(CanvasCourse, CanvasCourse.id == CanvasLink.canvas_course_id)
    query = query.join(Assignment, Assignment.id == CanvasLink.assignment_id)
    query = query.join(Course, Course.id == Assignment.course_id)
    return query.where(CanvasLink.ended_at.is_(None), *where).order_by(CanvasLink.id)


def _link(row: Any) -> Link:
    link, course, assignment, slug = row
    return Link(
        link.id, course.id, course.connection, course.canvas_course, link.canvas_assignment,
        assignment.course_id, slug, assignment.id, assignment.title, link.points_possible,
    )  # fmt: skip


def list_live_links(session: Session, only: int | None = None) -> list[Link]:
    """All live links, or the one with this id."""
    where = () if only is None else (CanvasLink.id == only,)
    return [_link(row) for row in session.execute(_links(*where))]


def load_link(session: Session, link_id: int) -> Link:
    """A live link. Raises NotFound."""
    found = list_live_links(session, link_id)
    if not found:
        raise NotFound(NO_SUCH_LINK(link=link_id))
    return found[0]


def link_assignment(
    session: Session, connection: str, task: Task, title: str, assignment_id: int, by: str
) -> int:
    """Link an assignment of a Canvas to ours; returns the link's id. Raises NotForTheBridge, Conflict."""
    if task.problem:
        raise NotForTheBridge(NOT_LINKABLE(title=task.title, problem=task.problem))
    assignment = session.get_one(Assignment, assignment_id)
    course = _course(session, connection, task.course, title, assignment.course_id, by)
    known = (CanvasLink.canvas_course_id == course.id, CanvasLink.canvas_assignment == task.id)
    row = session.scalar(select(CanvasLink).where(*known).with_for_update())
    if row is not None and row.ended_at is None and row.assignment_id != assignment_id:
        raise Conflict(LINKED_ALREADY(link=row.id))
    if row is None:
        row = CanvasLink(canvas_course_id=course.id, canvas_assignment=task.id, assignment_id=assignment_id)
        session.add(row)
        session.flush()
    elif row.assignment_id != assignment_id:
        _forget(session, row.id)  # what was pulled became submissions of another assignment
    if row.ended_at is not None or row.assignment_id != assignment_id:
        row.pulled_at = row.listed_at = None
    row.assignment_id, row.ended_at = assignment_id, None
    row.title, row.points_possible = task.title, task.points
    session.flush()
    session.info[platform.KIND] = True
    write_audit(
        session, by, "canvas.link", f"assignment:{assignment_id}", {"link": row.id, "canvas": connection}
    )
    theirs = select(Submission.id).where(Submission.assignment_id == assignment_id, Submission.number > 0)
    platform.add_scores(session, session.scalars(theirs))
    return row.id


def _course(
    session: Session, connection: str, number: str, title: str, course_id: int, by: str
) -> CanvasCourse:
    here = (CanvasCourse.connection == connection, CanvasCourse.canvas_course == number)
    row = session.scalar(select(CanvasCourse).where(*here).with_for_update())
    if row is None:
        row = CanvasCourse(
            connection=connection, canvas_course=number, course_id=course_id,
            created_at=now(session), created_by=by[:100],
        )  # fmt: skip
        session.add(row)
    elif row.course_id != course_id:
        links = select(CanvasLink.id).where(CanvasLink.canvas_course_id == row.id)
        if session.scalar(links.where(CanvasLink.ended_at.is_(None)).limit(1)) is not None:
            raise Conflict(OTHER_COURSE)
        row.course_id = course_id
    row.title = title
    session.flush()
    return row


def unlink(session: Session, link_id: int, by: str) -> None:
    """End a link; submissions, grades and imported attempts stay. Raises NotFound."""
    found = load_link(session, link_id)
    session.execute(update(CanvasLink).where(CanvasLink.id == link_id).values(ended_at=now(session)))
    write_audit(session, by, "canvas.unlink", f"assignment:{found.assignment_id}", {"link": link_id})


def _forget(session: Session, link_id: int) -> None:
    for table in (CanvasAttempt, CanvasScore, CanvasScoreAttempt):
        session.execute(delete(table).where(table.link_id == link_id))


def update_link(session: Session, link_id: int, task: Task) -> None:
    """Store the title and points of Canvas' assignment; sends all scores again where the points changed."""
    row = session.get_one(CanvasLink, link_id)
    row.title, row.points_possible = task.title, task.points


@dataclass(frozen=True)
class Pull:
    """An import of a link that has begun."""

    began: datetime
    since: datetime | None
    """It asks for what was submitted since; None: for all, as once a day."""


def begin_pull(session: Session, link: Link) -> Pull:
    """Begin an import. One a day asks for everything: what an earlier one passed over comes within a day."""
    row, moment = session.get_one(CanvasLink, link.id), now(session)
    whole = row.pulled_at is None or row.listed_at is None or row.listed_at <= moment - WHOLE_EVERY
    return Pull(moment, None if whole or row.pulled_at is None else row.pulled_at - OVERLAP)


def record_pull(session: Session, link: Link, pull: Pull | None, error: str) -> None:
    """Record the end of an import; `pull` is None where it did not come to its end."""
    values: dict[str, Any] = {"error": error[:500]}
    if pull is not None and not error:
        values["pulled_at"] = pull.began
        values |= {"listed_at": pull.began} if pull.since is None else {}
    session.execute(update(CanvasLink).where(CanvasLink.id == link.id).values(values))


def record_people(session: Session, course_row: int, error: str) -> None:
    """Record that the users of a course were read, or why not."""
    values: dict[str, Any] = {"error": error[:500]}
    if not error:
        values["pulled_at"] = now(session)
    session.execute(update(CanvasCourse).where(CanvasCourse.id == course_row).values(values))


def record_comparison(session: Session, link_id: int, error: str) -> None:
    """Record the end of a comparison."""
    values: dict[str, Any] = {"compare_error": error[:500], "compared_at": now(session)}
    session.execute(update(CanvasLink).where(CanvasLink.id == link_id).values(values))


def list_links(session: Session, course_id: int | None = None) -> list[LinkEntry]:
    """All links, or those of one of our courses, with their state; in a constant number of queries."""
    where = () if course_id is None else (Assignment.course_id == course_id,)
    rows = session.execute(_links(*where)).all()
    if not rows:
        return []
    imported = _counts(session, CanvasAttempt, CanvasAttempt.error != "")
    one = CanvasScore
    kinds = (one.sent_at.is_not(None), one.error != "", one.differs_at.is_not(None))
    sent = _counts(session, one, *kinds)
    return [
        LinkEntry(
            _link(row), row[0].pulled_at, row[0].compared_at,
            tuple(one for one in (row[1].error, row[0].error, row[0].compare_error) if one),
            *imported.get(row[0].id, (0, 0)), *sent.get(row[0].id, (0, 0, 0, 0))[1:],
        )
        for row in rows
    ]  # fmt: skip


def _counts(session: Session, table: Any, *which: Any) -> Mapping[int, Sequence[int]]:
    """Link -> number of rows, and of rows of each of these kinds."""
    some = [func.count().filter(one) for one in which]
    query = select(table.link_id, func.count(), *some).group_by(table.link_id)
    return {row[0]: row[1:] for row in session.execute(query)}


def list_imported(session: Session, link: Link) -> set[tuple[str, int]]:
    """Canvas users and attempts that were imported."""
    query = select(Identity.subject, CanvasAttempt.attempt).join(
        CanvasAttempt, CanvasAttempt.user_id == Identity.user_id
    )
    query = query.where(Identity.provider == link.provider, CanvasAttempt.link_id == link.id)
    return {(row.subject, row.attempt) for row in session.execute(query)}


def list_students(session: Session, link: Link) -> set[str]:
    """Students of the course with an identity of this Canvas, by their id there."""
    query = select(Identity.subject).join(Membership, Membership.user_id == Identity.user_id)
    here = (Identity.provider == link.provider, Membership.course_id == link.course_id)
    return set(session.scalars(query.where(*here, Membership.role == "student")))


def import_attempt(store: Store, link: Link, attempt: Attempt, content: SubmittedFiles) -> Accepted | None:
    """Submit an attempt; None where another process did, or its user is unknown.

    Raises the errors of submitting.
    """
    try:
        with store.write() as session:
            row = _row(session, link, attempt, "")
            if row is None:
                return None
            session.flush()
            accepted = intake.accept_submission(
                session,
                IncomingSubmission(
                    link.assignment_id, row.user_id, KIND, content, at=attempt.at, trusted=True
                ),
            )  # Canvas has its own door, and this comes minutes later
            row.submission_id = accepted.submission_id
            return accepted
    except IntegrityError:
        with store.read() as session:
            if (attempt.user, attempt.number) in list_imported(session, link):
                return None
        raise


def refuse_attempt(session: Session, link: Link, attempt: Attempt, error: str) -> None:
    """Store why an attempt cannot become a submission."""
    row = _row(session, link, attempt, error)
    if row is not None and (attempt.user, attempt.number) not in list_imported(session, link):
        session.merge(row)


def _row(session: Session, link: Link, attempt: Attempt, error: str) -> CanvasAttempt | None:
    user: tables.User | None = users.find_user(session, link.provider, attempt.user)
    if user is None:
        return None
    row = CanvasAttempt(
        link_id=link.id, user_id=user.id, attempt=attempt.number, late=attempt.late,
        error=error[:500], at=now(session),
    )  # fmt: skip
    if not error:
        session.add(row)
    return row
