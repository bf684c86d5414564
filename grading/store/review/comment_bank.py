"""Comment bank: comments that the staff of a course reuse."""

from __future__ import annotations

from datetime import datetime
from functools import cache

from sqlalchemy import Select, bindparam, func, select
from sqlalchemy.orm import Session

from grading.domain.base_value import Value
from grading.domain.errors import GraderError, NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.store.audit import write_audit
from grading.store.database import now
from grading.store.tables import SavedComment, User

NO_SUCH_COMMENT = define_message("comment_bank.no_such_comment", "This comment does not exist.")
TEXT_LENGTH = define_message(
    "comment_bank.text_length", "Enter a comment of 1 to %(most)s characters to save it."
)
COURSE_FULL = define_message(
    "comment_bank.course_full", "This course already has %(most)s saved comments. Delete some first."
)

MAX_COMMENTS = 500
"""Comments in a course's bank."""
MAX_CHARS = 2_000


class CommentRefused(GraderError):
    """This comment cannot be saved."""

    code = "comment_refused"
    status = 422
    default_message = define_message("error.comment_refused", "This comment cannot be saved.")


PER_PAGE = 25


class SavedText(Value):
    """A comment in the bank."""

    id: int
    text: str
    by: str
    at: datetime


def list_texts(session: Session, course_id: int) -> tuple[str, ...]:
    """The comments of a course, in order."""
    return tuple(session.scalars(_texts(), {"course_id": course_id}))


@cache
def _texts() -> Select[str]:
    query = select(SavedComment.text).where(SavedComment.course_id == bindparam("course_id"))
    return query.order_by(func.lower(SavedComment.text), SavedComment.id).limit(MAX_COMMENTS)


class Page(Value):
    """One page of comments."""

    items: tuple[SavedText, ...]
    page: int
    pages: int
    total: int


def list_comments(session: Session, course_id: int, page: int = 1) -> Page:
    """One page of a course's comments, in alphabetical order."""
    of_course = SavedComment.course_id == course_id
    total = session.scalar(select(func.count()).select_from(SavedComment).where(of_course)) or 0
    pages = max(1, -(-total // PER_PAGE))
    page = min(max(page, 1), pages)
    query = (
        select(SavedComment.id, SavedComment.text, User.name, SavedComment.at)
        .outerjoin(User, User.id == SavedComment.by)
        .where(of_course)
        .order_by(func.lower(SavedComment.text), SavedComment.id)
        .offset((page - 1) * PER_PAGE)
        .limit(PER_PAGE)
    )
    rows = session.execute(query)
    items = tuple(SavedText(id=row.id, text=row.text, by=row.name or "", at=row.at) for row in rows)
    return Page(items=items, page=page, pages=pages, total=total)


def save_comment(session: Session, course_id: int, text: str, actor: Actor) -> int | None:
    """Save a comment; returns its id, or None where there is an equal one. Raises CommentRefused."""
    text = text.strip()
    if not text or len(text) > MAX_CHARS:
        raise CommentRefused(TEXT_LENGTH(most=MAX_CHARS))
    of_course = select(SavedComment.id).where(SavedComment.course_id == course_id)
    if session.scalar(of_course.where(SavedComment.text == text).limit(1)) is not None:
        return None
    if session.execute(select(func.count()).select_from(of_course.subquery())).scalar_one() >= MAX_COMMENTS:
        raise CommentRefused(COURSE_FULL(most=MAX_COMMENTS))
    row = SavedComment(course_id=course_id, text=text, by=actor.user_id, at=now(session))
    session.add(row)
    session.flush()
    write_audit(session, actor.name, "comment.save", f"course:{course_id}", {"text": text[:200]})
    return row.id


def delete_comment(session: Session, course_id: int, comment_id: int, actor: Actor) -> str:
    """Delete a comment; returns its text. Raises NotFound."""
    row = session.get(SavedComment, comment_id)
    if row is None or row.course_id != course_id:
        raise NotFound(NO_SUCH_COMMENT)
    session.delete(row)
    write_audit(session, actor.name, "comment.delete", f"course:{course_id}", {"text": row.text[:200]})
    return row.text
