"""Erasure of a student: all their data is deleted, and the audit refers to them by number.

`grading.broker.erasure` deletes their data in Redis; a periodic task that is written in the same transaction
repeats it until no late result of a machine can arrive.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, bindparam, cast, func, or_, select, text, update
from sqlalchemy.orm import Session

from grading.domain.errors import Conflict, Forbidden, GraderError, NotFound
from grading.store import periodic_tasks
from grading.store.accounts import second_factor, sessions, sign_in_attempts, users
from grading.store.audit import UNDO, write_audit
from grading.store.bulk import chunks, delete_rows
from grading.store.database import Store, now
from grading.store.learning_platforms import known_platforms
from grading.store.privacy.deletion import delete_class_uploads, delete_submissions, lock_submissions
from grading.store.submissions.pending_uploads import delete_uploads
from grading.store.tables import (
    Assignment,
    Audit,
    ClassUpload,
    Extension,
    GatewayUse,
    GroupMember,
    HumanMark,
    IdempotencyKey,
    Identity,
    LevelView,
    MailPreference,
    Membership,
    Outbox,
    Precheck,
    RegradeRequest,
    ResetLink,
    Round,
    Run,
    StressVariant,
    Submission,
    SubmissionMember,
    Token,
    Upload,
    User,
)
from grading.store.trust import human_marks

BLANK: Mapping[str, Any] = {
    "name": "", "email": "", "password_hash": None, "disabled": True, "language": "",
    "mail_when_ready": False,
}  # fmt: skip
"""What is left of a user's row."""
ACTION = "student.erase"
WITHDRAW = "withdraw:"
WITHDRAW_FOR = timedelta(hours=2)
"""A machine may answer within its budget, and Redis keeps a result for an hour."""
COMPACT_S = 60.0
AUDIT_TEXTS = (Audit.actor, Audit.object, Audit.detail)
"""Columns of the audit in which somebody may be named."""


_NAMES = (Audit.actor, Audit.object)


@dataclass(frozen=True)
class Erased:
    """The student as found in the last transaction, and the number of deleted rows by table."""

    student: Student
    counts: Counter[str]


class NotCompacted(GraderError):
    """The student is erased, but the file was in use and could not be rewritten; run the same again."""

    code = "not_compacted"
    status = 503


def preview_erasure(session: Session, who: str) -> tuple[StudentIdentity, dict[str, int]]:
    """The student that `who` means, and the number of rows. Raises the errors of `find_student`."""
    return count_student(session, who)


def erase_student(session: Session, known: StudentIdentity, by: str) -> Erased:
    """Delete all data of a student; idempotent.

    The user's row stays, empty and disabled, so that its id is never used again.
    """
    # whoever submits locks this row, too; their next submission finds it disabled. `key_share` lets rows that
    # refer to it through: who adds a round holds the submission that is waited for next
    session.execute(select(User.id).where(User.id == known.user_id).with_for_update(key_share=True))
    lock_submissions(session, Submission.student_id == known.user_id)
    student = find_student(session, known.name)
    counts = delete_submissions(session, student.submissions)
    counts += delete_class_uploads(session, student.class_uploads)
    counts += delete_uploads(
        session, list(session.scalars(select(Upload.id).where(Upload.user_id == student.user_id)))
    )
    counts += _scattered(session, student)
    sign_in_attempts.reset_account(session, student.user_id)
    sessions.end_sessions(session, student.user_id)
    second_factor.delete_all(session, student.user_id)
    counts += delete_rows(session, GatewayUse, GatewayUse.token_id.in_(student.tokens))
    personal = (Token, Membership, Identity, ResetLink, GroupMember, SubmissionMember, MailPreference)
    for table in (*personal, Precheck, LevelView):
        counts += delete_rows(session, table, table.user_id == student.user_id)
    for platform in known_platforms():
        for theirs in (*platform.personal, *platform.transient):
            counts += delete_rows(session, theirs, theirs.user_id == student.user_id)
    for asked in (Extension, RegradeRequest):
        counts += delete_rows(session, asked, asked.student_id == student.user_id)
    for some in chunks(human_marks.list_of_person(session, student.user_id, student.texts)):
        counts += delete_rows(session, HumanMark, HumanMark.id.in_(some))
    callers = [student.name, *(f"token:{one}" for one in student.tokens)]
    counts += delete_rows(session, IdempotencyKey, IdempotencyKey.caller.in_(callers))
    submitted = update(Submission).where(Submission.submitted_by == student.user_id)
    session.execute(submitted.values(submitted_by=None))
    user = update(User).where(User.id == student.user_id)
    session.execute(user.values(**BLANK, created_at=now(session)))
    counts["audit rows without the name"] += _depersonalise(session, student)
    _plan_withdrawal(session, student)
    write_audit(session, by, ACTION, student.name, dict(+counts))
    return Erased(student, +counts)


def _scattered(session: Session, student: Student) -> Counter[str]:
    """Outbox rows of any kind that refer to the student's work."""
    ids = (*student.submissions, *student.rounds, *student.runs)
    counts: Counter[str] = Counter()
    if not ids:
        return counts
    rows = session.execute(select(Outbox.id, Outbox.key, Outbox.payload).execution_options(yield_per=1000))
    found = [row.id for row in rows if _mentions(f"{row.key} {json.dumps(row.payload)}", ids)]
    for some in chunks(found):
        counts += delete_rows(session, Outbox, Outbox.id.in_(some))
    return counts


def _mentions(content: str, texts: tuple[str, ...]) -> bool:
    return any(one in content for one in texts)


def _depersonalise(session: Session, student: Student) -> int:
    """Replace names, ids and addresses in the audit by the number."""
    if not student.texts:
        return 0
    query = select(Audit.id, *AUDIT_TEXTS).where(_may_name(student))
    rows = session.execute(query.execution_options(yield_per=1000))
    changes = []
    for row in rows:
        old = {column.key: getattr(row, column.key) for column in AUDIT_TEXTS}
        kept = old | {"detail": _without_words(row.object, row.detail, student)}
        new = {name: _replaced(value, student) for name, value in kept.items()}
        if new != old:
            changes.append((row.id, new))
    for audit_id, new in changes:
        session.execute(update(Audit).where(Audit.id == audit_id).values(new))
    return len(changes)


def _may_name(student: Student) -> ColumnElement[bool]:
    """Whether an audit row may be about the student, so that the database sends no others."""
    detail = cast(Audit.detail, Text)
    # as it is stored: what is not ASCII is escaped
    inside = [detail.contains(json.dumps(one)[1:-1], autoescape=True) for one in student.texts]
    named = [column.contains(one, autoescape=True) for column in _NAMES for one in student.texts]
    about = detail.contains(f'"student": {student.user_id}', autoescape=True)
    return or_(*inside, *named, about, *(Audit.object.in_(some) for some in chunks(sorted(student.objects))))


def _without_words(object_: str, detail: Any, student: Student) -> Any:
    """An audit row's detail without texts by people, which quote the work or describe the student."""
    about = object_ in student.objects or (
        isinstance(detail, dict) and detail.get("student") == student.user_id
    )
    if not about or not isinstance(detail, dict):
        return detail
    kept = {key: value for key, value in detail.items() if key not in ("reason", UNDO)}
    moved = {key: kept[key] for key in ("from", "to") if isinstance(kept.get(key), dict)}
    return kept | {key: {k: v for k, v in one.items() if k != "text"} for key, one in moved.items()}


def _replaced(value: Any, student: Student) -> Any:
    """A value with the student's texts replaced where a text or a word equals one."""
    if isinstance(value, dict):
        return {key: _replaced(one, student) for key, one in value.items()}
    if isinstance(value, list):
        return [_replaced(one, student) for one in value]
    if isinstance(value, str) and value:
        for one in student.texts:
            value = student.name if value == one else value
            # short ones would be found within other words
            value = value.replace(one, student.name) if len(one) > 3 and one in value else value
    return value


def _plan_withdrawal(session: Session, student: Student) -> None:
    """Schedule the deletion of the student's data in Redis, until no late result can arrive."""
    if not student.rounds:
        return
    until = now(session) + WITHDRAW_FOR
    payload = {"ids": [*student.submissions, *student.rounds, *student.runs], "until": until.isoformat()}
    periodic_tasks.schedule(session, f"{WITHDRAW}{student.rounds[-1]}", payload)


def erased_since(session: Session, moment: Any) -> list[str]:
    """Students erased after a moment, as `user:NUMBER`."""
    query = select(Audit.object).where(Audit.action == ACTION, Audit.at > moment)
    return sorted(set(session.scalars(query)))


def compact_database(store: Store) -> None:
    """Overwrite deleted rows: rewrite an SQLite file as a whole. Raises NotCompacted.

    PostgreSQL is only told to reuse their space.
    """
    deadline = time.monotonic() + COMPACT_S
    while True:
        try:
            if _compacted(store):
                return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise NotCompacted(
                    f"The student is erased, but the file could not be rewritten: {error}."
                ) from error
        if time.monotonic() > deadline:
            raise NotCompacted
        time.sleep(0.2)


def _compacted(store: Store) -> bool:
    """False when readers of an older snapshot keep the write-ahead log from being emptied."""
    if store.engine.dialect.name != "sqlite":
        with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("vacuum"))
        return True
    raw = store.engine.raw_connection()
    try:
        driver: Any = raw.driver_connection
        driver.execute("VACUUM")
        (busy, _, _) = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        raw.close()
    return not busy


COUNTED = ("submissions", "rounds", "runs", "tokens", "class zips")


@dataclass(frozen=True)
class StudentIdentity:
    """Identity of a student. `name` is a pseudonym: `user:12`."""

    user_id: int
    texts: tuple[str, ...]
    """Names, ids and addresses, the longest first."""
    subjects: tuple[str, ...]
    """Sign-in names and student ids."""
    local: tuple[str, ...]
    """The `local` subjects among them, the oldest first."""

    @property
    def name(self) -> str:
        """Their name in the audit, before and after the erasure."""
        return f"user:{self.user_id}"


@dataclass(frozen=True)
class Student(StudentIdentity):
    """A student with the ids of all their rows."""

    submissions: tuple[str, ...]
    rounds: tuple[str, ...]
    runs: tuple[str, ...]
    tokens: tuple[int, ...]
    class_uploads: tuple[str, ...]
    """Class uploads of their courses: any of them may contain their work."""

    @property
    def objects(self) -> frozenset[str]:
        """Names of their objects in the audit."""
        ids = {"submission": self.submissions, "round": self.rounds, "run": self.runs, "token": self.tokens}
        return frozenset({self.name, *(f"{kind}:{one}" for kind, many in ids.items() for one in many)})


def find_student(session: Session, who: str) -> Student:
    """The student with this sign-in name, student id, e-mail address or `user:NUMBER`, with all their ids.

    Raises NotFound, Conflict when several people match, Forbidden for staff.
    """
    known = find_identity(session, who)
    submissions, rounds, runs, tokens, class_uploads = _belongings(known.user_id)
    return Student(
        **vars(known),
        submissions=tuple(session.scalars(submissions.order_by(Submission.created_at))),
        rounds=tuple(session.scalars(rounds.order_by(Round.created_at))),
        runs=tuple(session.scalars(runs)),
        tokens=tuple(session.scalars(tokens)),
        class_uploads=tuple(session.scalars(class_uploads)),
    )


def count_student(session: Session, who: str) -> tuple[StudentIdentity, dict[str, int]]:
    """The student and the number of their rows by kind. Raises the errors of `find_student`."""
    known = find_identity(session, who)
    found = session.execute(_counts(), {"user_id": known.user_id}).one()
    return known, dict(zip(COUNTED, map(int, found), strict=True))


@cache
def _counts() -> Any:
    user_id: Any = bindparam("user_id")
    submissions, _rounds, _runs, tokens, class_uploads = (
        select(func.count()).select_from(query.subquery()).scalar_subquery() for query in _belongings(user_id)
    )
    of_round = select(func.count()).where(Run.round_id == Round.id).correlate(Round).scalar_subquery()
    return (
        select(submissions, func.count(), func.coalesce(func.sum(of_round), 0), tokens, class_uploads)
        .select_from(Round)
        .where(Round.student_id == user_id)
    )


def find_identity(session: Session, who: str) -> StudentIdentity:
    """The student's identity. Raises the errors of `find_student`."""
    found = _users(session, who.strip())
    if not found:
        raise NotFound(
            f"No account matches '{who}'. Enter a sign-in name, student ID, email address or user:NUMBER."
        )
    if len(found) > 1:
        names = ", ".join(f"user:{user.id}" for user in found)
        raise Conflict(f"'{who}' matches several accounts. Enter one of these: {names}.")
    (user,) = found
    if user.administrator or set(users.roles(session, user.id).values()) - {"student"}:
        raise Forbidden(f"'{who}' is staff. Only data of students can be exported or deleted.")
    known = session.execute(_subjects(), {"user_id": user.id}).all()
    subjects = [row.subject for row in known]
    texts = {text for text in (user.name, user.email, *subjects) if text}
    return StudentIdentity(
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
    """Queries for the ids of their rows, in the order of COUNTED."""
    mine = select(Submission.id).where(Submission.student_id == user_id)
    # of a stress test while it grades them: they hold the student's work
    variants = select(StressVariant.variant_id).where(StressVariant.source_id.in_(mine))
    # one list of ids: PostgreSQL answers two of them joined by "or" by reading all submissions
    submissions = select(Submission.id).where(Submission.id.in_(mine.union(variants)))
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
        select(ClassUpload.id).where(ClassUpload.assignment_id.in_(assignments)),
    )
