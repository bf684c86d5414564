"""Export of all data of one student, as a zip for people and programs."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import PurePosixPath
from typing import IO, Any

from sqlalchemy import inspect, or_, select
from sqlalchemy.orm import Session, undefer

from grading.checks.visibility import for_student
from grading.domain.evidence import Evidence
from grading.domain.messages import Message
from grading.domain.report import Report
from grading.scoring.plain_text_report import as_text
from grading.store.audit import write_audit
from grading.store.blobs import load_blobs
from grading.store.bulk import chunks
from grading.store.database import Store, now
from grading.store.learning_platforms import known_platforms
from grading.store.privacy.erasure import Student
from grading.store.rounds import prompts
from grading.store.tables import (
    Assignment,
    Audit,
    Base,
    CachedExecution,
    Change,
    Course,
    DryRunRound,
    Example,
    Extension,
    GatewayUse,
    GoldenSubmission,
    Grade,
    GroupMember,
    GuaranteeCandidate,
    GuaranteeMember,
    HumanMark,
    IdempotencyKey,
    Identity,
    InboundWebhook,
    LevelView,
    MailPreference,
    Mark,
    Membership,
    OpenSession,
    Outbox,
    Precheck,
    Prompt,
    RecoveryCode,
    RegradeRequest,
    ResetLink,
    Round,
    RoundStage,
    Run,
    SecondFactor,
    SecondOpinion,
    SeparateAnswer,
    ShadowRun,
    StressVariant,
    Submission,
    SubmissionFile,
    SubmissionMember,
    Token,
    Upload,
    UploadFile,
    User,
)
from grading.store.tables.assignments import SAMPLE
from grading.store.trust import human_marks

AT_ONCE = 20
"""Rows that are read at once: one may hold a whole work."""
SECRET = {
    *("users.password_hash", "tokens.hash", "reset_links.hash", "open_sessions.id"),
    "open_sessions.id_token",
    *("second_factors.salt", "recovery_codes.hash"),
}
"""Columns left out: credentials and their hashes."""
ADDED = (
    Change, Mark, LevelView, Example, DryRunRound, SecondOpinion, GoldenSubmission, ShadowRun,
    GuaranteeMember, GuaranteeCandidate, SeparateAnswer,
)  # fmt: skip
"""Tables of what people, and models after them, added to grades, and who saw them."""
README = """This is everything Grader holds on one student.

data.json    every row of the database that is theirs: the account, identities, courses, tokens, submissions
             with what was read from their files, gradings, what running their work showed, what models
             read of it, the results of the machines, grades and reports, and the audit of what they did and
             of what was done with their work; without the instructor's hidden tests, and without what
             compares their work with that of others
submissions/ the files as they were submitted, a folder for each submission
reports/     the report of each grading as text; "not released" means that the student could not see it yet

Passwords and tokens are kept as hashes only and are left out. A class zip that a teacher uploaded may hold a
copy of the same files together with those of others; it is not part of this.
"""


def write_export(store: Store, student: Student, to: IO[bytes], by: str) -> dict[str, int]:
    """Write the zip and an audit row; returns the number of rows by table.

    Rows are read in one transaction, each file in one of its own: a slow object store holds none. A file that
    was deleted meanwhile is left out. Raises FilesUnavailable and FileDamaged.
    """
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("README.txt", README)
        with store.read() as session:
            student = _own_work_only(session, student)
            folders = _folders(session, student)
            head = {"student": student.name, "exported_at": now(session).isoformat()}
            with archive.open("data.json", "w", force_zip64=True) as data:
                counts = _write_rows(data, head, _rows(session, student))
            for grade in _in(session, Grade, Grade.submission_id, student.submissions):
                name = f"reports/{folders[grade.submission_id]}-{grade.round_id[:8]}.md"
                archive.writestr(name, _report(grade, folders[grade.submission_id]))
            rows = _in(session, SubmissionFile, SubmissionFile.submission_id, student.submissions)
            files = [(f"{folders[row.submission_id]}/{_within(row.path)}", row.sha256) for row in rows]
        for path, sha256 in files:
            with store.read() as session:
                content = load_blobs(session, [sha256]).get(sha256)
            if content is not None:
                archive.writestr(f"submissions/{path}", content)
    with store.write() as session:
        write_audit(session, by, "student.export", student.name, counts)
    return counts


def _write_rows(
    to: IO[bytes], head: Mapping[str, str], found: Iterable[tuple[type[Base], Iterator[dict[str, Any]]]]
) -> dict[str, int]:
    """Write one JSON object, row by row: somebody's rows of all years need not fit into memory."""
    counts: dict[str, int] = {}
    to.write(json.dumps(head, indent=2, ensure_ascii=False).removesuffix("\n}").encode())
    for table, rows in found:
        to.write(f',\n  "{table.__tablename__}": ['.encode())
        count = 0
        for count, row in enumerate(rows, 1):
            text = json.dumps(row, indent=2, ensure_ascii=False).replace("\n", "\n    ")
            to.write(f"{',' if count > 1 else ''}\n    {text}".encode())
        to.write(b"\n  ]" if count else b"]")
        if count:
            counts[table.__tablename__] = count
    to.write(b"\n}")
    return counts


def _own_work_only(session: Session, student: Student) -> Student:
    """The student without samples of a rubric, which a former instructor may have submitted, and variants."""
    tried = select(Submission.id).where(Submission.source == SAMPLE)
    samples = {
        one
        for some in chunks(student.submissions)
        for one in session.scalars(tried.where(Submission.id.in_(some)))
    }
    if not samples:
        return student
    rounds = set(session.scalars(select(Round.id).where(Round.submission_id.in_(samples))))
    runs = set(session.scalars(select(Run.id).where(Run.round_id.in_(rounds))))
    return replace(
        student,
        submissions=tuple(one for one in student.submissions if one not in samples),
        rounds=tuple(one for one in student.rounds if one not in rounds),
        runs=tuple(one for one in student.runs if one not in runs),
    )


def _rows(session: Session, student: Student) -> Iterator[tuple[type[Base], Iterator[dict[str, Any]]]]:
    ids = [student.user_id]
    courses = select(Round.course_id).where(Round.student_id == student.user_id)
    yield User, _plain(_in(session, User, User.id, ids))
    theirs: list[type[Any]] = [table for platform in known_platforms() for table in platform.personal]
    of_person: tuple[type[Any], ...] = (
        Identity, Membership, Token, ResetLink, OpenSession, SecondFactor, RecoveryCode, GroupMember,
        SubmissionMember, MailPreference, Precheck,
    )  # fmt: skip
    for table in (*of_person, *theirs):
        yield table, _plain(_in(session, table, table.user_id, ids))
    yield GatewayUse, _plain(_in(session, GatewayUse, GatewayUse.token_id, student.tokens))
    yield Course, _plain(session.scalars(select(Course).where(Course.id.in_(courses))))
    mine = select(Submission.assignment_id).where(Submission.student_id == student.user_id)
    yield Assignment, _plain(session.scalars(select(Assignment).where(Assignment.id.in_(mine))))
    uploads = list(session.scalars(select(Upload.id).where(Upload.user_id == student.user_id)))
    yield Upload, _plain(_in(session, Upload, Upload.id, uploads))
    yield UploadFile, _plain(_in(session, UploadFile, UploadFile.upload_id, uploads))
    yield Submission, _plain(_in(session, Submission, Submission.id, student.submissions))
    for asked in (Extension, RegradeRequest):
        yield asked, _plain(_in(session, asked, asked.student_id, ids))
    marks = human_marks.list_of_person(session, student.user_id, student.texts)
    yield HumanMark, _plain(_in(session, HumanMark, HumanMark.id, marks))
    for owned in (
        SubmissionFile,
        Round,
        Grade,
        *ADDED,
        CachedExecution,
        IdempotencyKey,
        InboundWebhook,
    ):
        yield owned, _plain(_in(session, owned, owned.submission_id, student.submissions))
    yield StressVariant, _plain(_in(session, StressVariant, StressVariant.source_id, student.submissions))
    for part in (RoundStage, Run):
        yield part, _plain(_in(session, part, part.round_id, student.rounds))
    yield Prompt, _plain(_in(session, Prompt, Prompt.run_id, student.runs))
    yield Outbox, _plain(_mentioned(session, student))
    about = or_(Audit.object.in_(student.objects), Audit.actor.in_(student.objects))
    yield Audit, _plain(session.scalars(select(Audit).where(about).order_by(Audit.id)))


def _in(session: Session, table: type[Any], column: Any, ids: Iterable[Any]) -> Iterator[Any]:
    query = select(table)
    if table is Round:
        query = query.options(undefer(Round.prepared))
    for some in chunks(list(ids)):
        yield from session.scalars(query.where(column.in_(some)).execution_options(yield_per=AT_ONCE))


def _mentioned(session: Session, student: Student) -> Iterator[Outbox]:
    ids = {*student.submissions, *student.rounds, *student.runs}
    for row in session.scalars(select(Outbox).execution_options(yield_per=1000)):
        content = f"{row.key} {json.dumps(row.payload)}"
        if any(one in content for one in ids):
            yield row


def _plain(rows: Iterable[Base]) -> Iterator[dict[str, Any]]:
    for row in rows:
        table = row.__tablename__
        columns = (column.key for column in inspect(type(row)).columns)
        yield {
            name: _value(f"{table}.{name}", getattr(row, name))
            for name in columns
            if f"{table}.{name}" not in SECRET
        }


def _value(column: str, value: Any) -> Any:
    """As JSON, without what a hidden test or its expected value reveals."""
    if value is not None and column in PARTLY:
        return PARTLY[column](value)
    if isinstance(value, Message):
        return value.message
    return value.isoformat() if isinstance(value, datetime) else value


def _prepared(value: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        name: for_student(Evidence.model_validate(value[name])).model_dump(mode="json")
        for name in ("evidence", "hidden_evidence")
        if name in value
    }
    return {**value, **shown}


def _report_shown(value: dict[str, Any]) -> dict[str, Any]:
    return for_student(Report.model_validate(value)).model_dump(mode="json")


def _own_work(value: dict[str, Any]) -> dict[str, Any]:
    """The part of a sandbox run about the student's own code, without answers to the instructor's tests."""
    return {name: one for name, one in value.items() if name not in ("answers", "variables", "tests")}


PARTLY: dict[str, Callable[[Any], Any]] = {
    "rounds.prepared": _prepared,
    "grades.report": _report_shown,
    "cached_executions.content": _own_work,
    "prompts.user_message": prompts.text,
}
"""Columns that also hold the instructor's data, or are not readable."""


def _folders(session: Session, student: Student) -> dict[str, str]:
    """Submission -> its folder course/assignment/submission-n."""
    query = (
        select(Submission.id, Submission.number, Assignment.slug, Course.slug.label("course"))
        .join(Assignment, Assignment.id == Submission.assignment_id)
        .join(Course, Course.id == Assignment.course_id)
        .where(Submission.student_id == student.user_id)
    )
    return {row.id: f"{row.course}/{row.slug}/submission-{row.number}" for row in session.execute(query)}


def _within(path: str) -> str:
    """A relative path without parts that lead out of its folder."""
    parts = [part for part in PurePosixPath(path.replace("\\", "/")).parts if part not in ("/", "..", ".")]
    return "/".join(part.replace(":", "_") for part in parts) or "file"


def _report(grade: Grade, folder: str) -> str:
    return as_text(Report.model_validate(grade.report), folder, released=grade.released_at is not None)
