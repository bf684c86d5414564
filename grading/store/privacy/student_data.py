"""Finding a student for erasure and export, and all that belongs to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Select, bindparam, func, or_, select
from sqlalchemy.orm import Session

from grading.domain.errors import Conflict, Forbidden, NotFound
from grading.store.accounts import users
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

COUNTED = ("submissions", "rounds", "runs", "tokens", "class zips")


@dataclass(frozen=True)
class Known:
    """Who a student is. `name` is a pseudonym: `user:12`."""

    user_id: int
    texts: tuple[str, ...]
    """Names, ids and addresses, the longest first."""
    subjects: tuple[str, ...]
    """Sign-in names and student ids."""
    local: tuple[str, ...]
    """Those of them that one signs in with here, the oldest first."""

    @property
    def name(self) -> str:
        """What the audit calls them, before and after."""
        return f"user:{self.user_id}"


@dataclass(frozen=True)
class Student(Known):
    """A student with the ids of everything that is theirs."""

    submissions: tuple[str, ...]
    rounds: tuple[str, ...]
    runs: tuple[str, ...]
    tokens: tuple[int, ...]
    batches: tuple[str, ...]
    """Class zips of their courses: any of them may hold their work."""

    @property
    def objects(self) -> frozenset[str]:
        """What is theirs, as the audit writes it."""
        ids = {"submission": self.submissions, "round": self.rounds, "run": self.runs, "token": self.tokens}
        return frozenset({self.name, *(f"{kind}:{one}" for kind, many in ids.items() for one in many)})


def find_student(session: Session, who: str) -> Student:
    """The student with this sign-in name, student id, e-mail address or `user:NUMBER`, with what is theirs.

    Raises NotFound, Conflict when it fits several people, Forbidden for staff.
    """
    known = find_known(session, who)
    submissions, rounds, runs, tokens, batches = _belongings(known.user_id)
    return Student(
        **vars(known),
        submissions=tuple(session.scalars(submissions.order_by(Submission.created_at))),
        rounds=tuple(session.scalars(rounds.order_by(Round.created_at))),
        runs=tuple(session.scalars(runs)),
        tokens=tuple(session.scalars(tokens)),
        batches=tuple(session.scalars(batches)),
    )


def count_student(session: Session, who: str) -> tuple[Known, dict[str, int]]:
    """Whom that means, and how much of what is theirs. Raises what `find_student` raises."""
    known = find_known(session, who)
    found = session.execute(_counts(), {"user_id": known.user_id}).one()
    return known, dict(zip(COUNTED, map(int, found), strict=True))


@cache
def _counts() -> Any:
    user_id: Any = bindparam("user_id")
    submissions, _rounds, _runs, tokens, batches = (
        select(func.count()).select_from(query.subquery()).scalar_subquery() for query in _belongings(user_id)
    )
    of_round = select(func.count()).where(Run.round_id == Round.id).correlate(Round).scalar_subquery()
    return (
        select(submissions, func.count(), func.coalesce(func.sum(of_round), 0), tokens, batches)
        .select_from(Round)
        .where(Round.student_id == user_id)
    )


def find_known(session: Session, who: str) -> Known:
    """Who it is. Raises what `find_student` raises."""
    found = _users(session, who.strip())
    if not found:
        raise NotFound(
            f"Nobody is known as '{who}'; give a sign-in name, student id, e-mail address or user:NUMBER."
        )
    if len(found) > 1:
        names = ", ".join(f"user:{user.id}" for user in found)
        raise Conflict(f"'{who}' fits several people; say which one you mean: {names}.")
    (user,) = found
    if user.administrator or set(users.roles(session, user.id).values()) - {"student"}:
        raise Forbidden(f"'{who}' is a member of staff; this is for students.")
    known = session.execute(_subjects(), {"user_id": user.id}).all()
    subjects = [row.subject for row in known]
    texts = {text for text in (user.name, user.email, *subjects) if text}
    return Known(
        user_id=user.id,
        texts=tuple(sorted(texts, key=lambda text: (-len(text), text))),
        subjects=tuple(sorted({one for one in subjects if one})),
        local=tuple(row.subject for row in known if row.subject and row.provider == "local"),
    )


def _users(session: Session, who: str) -> Sequence[Any]:
    kind, _, number = who.partition(":")
    if kind == "user" and number.isdecimal():
        wanted = {"user_id": int(number)}
        return session.execute(_numbered(), wanted).all() if len(number) < 10 else ()
    subjects = select(Identity.user_id).where(Identity.subject == who)
    mail = func.lower(User.email) == who.lower()
    fits = or_(User.id.in_(subjects), mail) if "@" in who else User.id.in_(subjects)
    return session.execute(select(*_WHO).where(fits).order_by(User.id)).all()


_WHO = (User.id, User.name, User.email, User.administrator)


@cache
def _numbered() -> Any:
    return select(*_WHO).where(User.id == bindparam("user_id"))


@cache
def _subjects() -> Any:
    columns = (Identity.subject, Identity.provider)
    return select(*columns).where(Identity.user_id == bindparam("user_id")).order_by(Identity.id)


def _belongings(user_id: int | Any) -> tuple[Select[Any], ...]:
    """Queries of the ids of what is theirs, in the order of COUNTED."""
    submissions = select(Submission.id).where(Submission.student_id == user_id)
    rounds = select(Round.id).where(Round.submission_id.in_(submissions))
    courses = (
        select(Membership.course_id)
        .where(Membership.user_id == user_id)
        .union(select(Round.course_id).where(Round.student_id == user_id))
    )
    assignments = select(Assignment.id).where(Assignment.course_id.in_(courses))
    return (
        submissions,
        rounds,
        select(Run.id).where(Run.round_id.in_(rounds)),
        select(Token.id).where(Token.user_id == user_id),
        select(Batch.id).where(Batch.assignment_id.in_(assignments)),
    )
