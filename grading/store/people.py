"""Finding a student for erasure and export, and all that belongs to them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from grading.errors import Conflict, Forbidden, NotFound
from grading.store import accounts
from grading.store.tables import (
    Assignment,
    Batch,
    Identity,
    Membership,
    Round,
    Run,
    Submission,
    Token,
    User,
)


@dataclass(frozen=True)
class Student:
    """A student with the ids of everything that is theirs. `name` is a pseudonym: `user:12`."""

    user_id: int
    texts: tuple[str, ...]
    """Names, ids and addresses, the longest first."""
    submissions: tuple[str, ...]
    rounds: tuple[str, ...]
    runs: tuple[str, ...]
    tokens: tuple[int, ...]
    batches: tuple[str, ...]
    """Class zips of their courses: any of them may hold their work."""
    subjects: tuple[str, ...] = ()
    """Sign-in names and student ids."""

    @property
    def name(self) -> str:
        """What the audit calls them, before and after."""
        return f"user:{self.user_id}"

    @property
    def objects(self) -> frozenset[str]:
        """What is theirs, as the audit writes it."""
        ids = {"submission": self.submissions, "round": self.rounds, "run": self.runs, "token": self.tokens}
        return frozenset({self.name, *(f"{kind}:{one}" for kind, many in ids.items() for one in many)})


def find_student(session: Session, who: str) -> Student:
    """The student with this sign-in name, student id, e-mail address or `user:NUMBER`.

    Raises NotFound, Conflict when it fits several people, Forbidden for staff.
    """
    found = _users(session, who.strip())
    if not found:
        raise NotFound(
            f"Nobody is known as '{who}'; give a sign-in name, student id, e-mail address or user:NUMBER."
        )
    if len(found) > 1:
        names = ", ".join(f"user:{user.id}" for user in found)
        raise Conflict(f"'{who}' fits several people; say which one you mean: {names}.")
    (user,) = found
    if user.administrator or set(accounts.roles(session, user.id).values()) - {"student"}:
        raise Forbidden(f"'{who}' is a member of staff; this is for students.")
    return _belongings(session, user)


def _users(session: Session, who: str) -> list[User]:
    kind, _, number = who.partition(":")
    if kind == "user" and number.isdecimal():
        user = session.get(User, int(number)) if len(number) < 10 else None
        return [user] if user else []
    subjects = select(Identity.user_id).where(Identity.subject == who)
    mail = func.lower(User.email) == who.lower()
    query = select(User).where(or_(User.id.in_(subjects), mail) if "@" in who else User.id.in_(subjects))
    return list(session.scalars(query.order_by(User.id)))


def _belongings(session: Session, user: User) -> Student:
    subjects = [identity.subject for identity in user.identities]
    texts = {text for text in (user.name, user.email, *subjects) if text}
    submissions = select(Submission.id).where(Submission.student_id == user.id)
    rounds = select(Round.id).where(Round.submission_id.in_(submissions))
    courses = (
        select(Membership.course_id)
        .where(Membership.user_id == user.id)
        .union(select(Round.course_id).where(Round.student_id == user.id))
    )
    assignments = select(Assignment.id).where(Assignment.course_id.in_(courses))
    return Student(
        user_id=user.id,
        texts=tuple(sorted(texts, key=lambda text: (-len(text), text))),
        submissions=tuple(session.scalars(submissions.order_by(Submission.created_at))),
        rounds=tuple(session.scalars(rounds.order_by(Round.created_at))),
        runs=tuple(session.scalars(select(Run.id).where(Run.round_id.in_(rounds)))),
        tokens=tuple(session.scalars(select(Token.id).where(Token.user_id == user.id))),
        batches=tuple(session.scalars(select(Batch.id).where(Batch.assignment_id.in_(assignments)))),
        subjects=tuple(sorted({one for one in subjects if one})),
    )
