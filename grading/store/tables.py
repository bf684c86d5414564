"""The tables. The uniqueness rules of the invariants are constraints here, not habits of the code."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    CheckConstraint,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class UtcDateTime(TypeDecorator[datetime]):
    """An instant; aware and in UTC in Python, on every database."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To the database."""
        if value is None:
            return None
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """From the database."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def new_id() -> str:
    """32 random hex digits."""
    return uuid.uuid4().hex


class Base(DeclarativeBase):
    """All tables of the store."""

    type_annotation_map = {datetime: UtcDateTime, dict[str, Any]: JSON, list[Any]: JSON}


Id = String(32)


class Course(Base):
    """A course, such as business-analytics."""

    __tablename__ = "courses"
    id: Mapped[int] = mapped_column(primary_key=True)
    slug: Mapped[str] = mapped_column(String(64), unique=True)
    title: Mapped[str] = mapped_column(String(200))


class User(Base):
    """A person. Signs in with a password, or through an identity of another provider."""

    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(200), default="")
    email: Mapped[str] = mapped_column(String(200), default="")
    password_hash: Mapped[str | None] = mapped_column(String(200))
    administrator: Mapped[bool] = mapped_column(Boolean, default=False)
    disabled: Mapped[bool] = mapped_column(Boolean, default=False)
    created_at: Mapped[datetime]
    failed_logins: Mapped[int] = mapped_column(Integer, default=0)
    locked_until: Mapped[datetime | None]
    identities: Mapped[list[Identity]] = relationship(back_populates="user")


class Identity(Base):
    """Who a user is to a provider: `local` (sign-in name, student id), an LMS connection."""

    __tablename__ = "identities"
    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    provider: Mapped[str] = mapped_column(String(64))
    subject: Mapped[str] = mapped_column(String(200))
    user: Mapped[User] = relationship(back_populates="identities")
    __table_args__ = (UniqueConstraint("provider", "subject"),)


class Membership(Base):
    """A user's role in a course."""

    __tablename__ = "memberships"
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), primary_key=True)
    course_id: Mapped[int] = mapped_column(ForeignKey("courses.id"), primary_key=True)
    role: Mapped[str] = mapped_column(String(20))
    __table_args__ = (CheckConstraint("role in ('student', 'grader', 'instructor')", name="role"),)


class Token(Base):
    """An API token; only its SHA-256 is kept."""

    __tablename__ = "tokens"
    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    name: Mapped[str] = mapped_column(String(100))
    hash: Mapped[str] = mapped_column(String(64), unique=True)
    scopes: Mapped[list[Any]]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]


class Assignment(Base):
    """A piece of homework. Its rubric and material are in versions; the highest number counts."""

    __tablename__ = "assignments"
    id: Mapped[int] = mapped_column(primary_key=True)
    course_id: Mapped[int] = mapped_column(ForeignKey("courses.id"))
    slug: Mapped[str] = mapped_column(String(64))
    title: Mapped[str] = mapped_column(String(200))
    language: Mapped[str] = mapped_column(String(32), default="")
    release: Mapped[str] = mapped_column(String(20), default="after_review")
    due_at: Mapped[datetime | None]
    """Shown to students; what is handed in later is graded all the same."""
    created_at: Mapped[datetime]
    course: Mapped[Course] = relationship()
    __table_args__ = (UniqueConstraint("course_id", "slug"),)


class RubricVersion(Base):
    """One version of an assignment's rubric, instructions, starter and solution; never changed."""

    __tablename__ = "rubric_versions"
    id: Mapped[int] = mapped_column(primary_key=True)
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"), index=True)
    number: Mapped[int]
    digest: Mapped[str] = mapped_column(String(64))
    rubric: Mapped[dict[str, Any]]
    task: Mapped[str] = mapped_column(Text, default="")
    instructions: Mapped[dict[str, Any]]
    starter: Mapped[list[Any]]
    solution: Mapped[list[Any]]
    share_solution: Mapped[bool] = mapped_column(Boolean, default=False)
    files: Mapped[dict[str, Any]]
    """path -> sha256 of a blob"""
    created_at: Mapped[datetime]
    __table_args__ = (UniqueConstraint("assignment_id", "number"),)


class Blob(Base):
    """Bytes, named by their SHA-256, so that equal files are stored once."""

    __tablename__ = "blobs"
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    size: Mapped[int]
    data: Mapped[bytes] = mapped_column(LargeBinary)


class Submission(Base):
    """What one student handed in, once; the student's `number`-th for this assignment."""

    __tablename__ = "submissions"
    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"))
    student_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    number: Mapped[int]
    source: Mapped[str] = mapped_column(String(20))
    documents: Mapped[list[Any]]
    notes: Mapped[list[Any]]
    submitted_by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    created_at: Mapped[datetime]
    assignment: Mapped[Assignment] = relationship()
    student: Mapped[User] = relationship(foreign_keys=[student_id])
    __table_args__ = (
        UniqueConstraint("assignment_id", "student_id", "number"),
        Index("submissions_by_time", "created_at"),
    )


class SubmissionFile(Base):
    """A file of a submission."""

    __tablename__ = "submission_files"
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), primary_key=True)
    path: Mapped[str] = mapped_column(String(400), primary_key=True)
    sha256: Mapped[str] = mapped_column(ForeignKey("blobs.sha256"), index=True)
    size: Mapped[int]


class IdempotencyKey(Base):
    """A caller's key and what it led to, so that a repeated POST hands in once."""

    __tablename__ = "idempotency_keys"
    caller: Mapped[str] = mapped_column(String(100), primary_key=True)
    key: Mapped[str] = mapped_column(String(200), primary_key=True)
    body_hash: Mapped[str] = mapped_column(String(64))
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"))
    created_at: Mapped[datetime]
    __table_args__ = (Index("idempotency_keys_by_submission", "submission_id"),)


class Round(Base):
    """One grading of one submission. At most one a submission is current."""

    __tablename__ = "rounds"
    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"))
    number: Mapped[int]
    reason: Mapped[str] = mapped_column(String(20))
    rubric_version_id: Mapped[int] = mapped_column(ForeignKey("rubric_versions.id"))
    state: Mapped[str] = mapped_column(String(20))
    current: Mapped[bool] = mapped_column(Boolean, default=True)
    priority: Mapped[str] = mapped_column(String(20), default="interactive")
    course_id: Mapped[int] = mapped_column(ForeignKey("courses.id"))
    student_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    prepared: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    """Documents without names, and evidence: what every job of the round carries. Large."""
    chord_open: Mapped[bool] = mapped_column(Boolean, default=False)
    """A chord is under way whose body will combine; without one, `record` does."""
    failure: Mapped[str] = mapped_column(Text, default="")
    created_at: Mapped[datetime]
    prepared_at: Mapped[datetime | None]
    dispatched_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    submission: Mapped[Submission] = relationship()
    rubric_version: Mapped[RubricVersion] = relationship()
    stages: Mapped[list[RoundStage]] = relationship(order_by="RoundStage.stage")
    __table_args__ = (
        UniqueConstraint("submission_id", "number"),
        Index(
            "one_current_round",
            "submission_id",
            unique=True,
            sqlite_where=text("current"),
            postgresql_where=text("current"),
        ),
        Index("rounds_by_state", "state", "priority", "created_at"),
        # holds all that measures need: the rows are large
        Index("rounds_by_end", "finished_at", "state", "priority", "created_at"),
    )


class RoundStage(Base):
    """One stage of a round: its tries and the run that counts now."""

    __tablename__ = "round_stages"
    round_id: Mapped[str] = mapped_column(ForeignKey("rounds.id"), primary_key=True)
    stage: Mapped[str] = mapped_column(String(40), primary_key=True)
    state: Mapped[str] = mapped_column(String(20))
    tries: Mapped[int] = mapped_column(Integer, default=0)
    """Runs that a machine took up, or may have."""
    runs: Mapped[int] = mapped_column(Integer, default=0)
    """Runs that were ever dispatched."""
    losses: Mapped[int] = mapped_column(Integer, default=0)
    """Runs that were begun and lost with their machine."""
    alone: Mapped[bool] = mapped_column(Boolean, default=False)
    """A run was lost together with others: the next has its machine to itself."""
    avoid: Mapped[list[Any]] = mapped_column(default=list)
    """Machines that failed at it; others are tried first."""
    run_id: Mapped[str | None] = mapped_column(Id)
    not_before: Mapped[datetime | None]
    error: Mapped[str | None] = mapped_column(String(40))
    message: Mapped[str] = mapped_column(Text, default="")
    __table_args__ = (Index("stages_by_state", "state", "not_before"),)


class Run(Base):
    """One execution of one stage of one round. At most one a (round, stage) is accepted."""

    __tablename__ = "runs"
    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    round_id: Mapped[str] = mapped_column(ForeignKey("rounds.id"))
    stage: Mapped[str] = mapped_column(String(40))
    attempt: Mapped[int]
    state: Mapped[str] = mapped_column(String(20))
    accepted: Mapped[bool] = mapped_column(Boolean, default=False)
    machine: Mapped[str | None] = mapped_column(String(40))
    error: Mapped[str | None] = mapped_column(String(40))
    result: Mapped[dict[str, Any] | None]
    dispatched_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    engine: Mapped[str | None] = mapped_column(String(40))
    model: Mapped[str | None] = mapped_column(String(200))
    seconds: Mapped[float | None] = mapped_column(Float)
    first_token_s: Mapped[float | None] = mapped_column(Float)
    prompt_tokens: Mapped[int | None]
    cached_tokens: Mapped[int | None]
    output_tokens: Mapped[int | None]
    __table_args__ = (
        UniqueConstraint("round_id", "stage", "attempt"),
        Index(
            "one_accepted_run",
            "round_id",
            "stage",
            unique=True,
            sqlite_where=text("accepted"),
            postgresql_where=text("accepted"),
        ),
        Index("runs_by_state", "state", "dispatched_at"),
        Index("runs_by_end", "finished_at"),
    )


class Grade(Base):
    """The report and points of one round; at most one a round. Seen by students once released."""

    __tablename__ = "grades"
    id: Mapped[int] = mapped_column(primary_key=True)
    round_id: Mapped[str] = mapped_column(ForeignKey("rounds.id"), unique=True)
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), index=True)
    points: Mapped[float | None] = mapped_column(Float)
    points_so_far: Mapped[float] = mapped_column(Float)
    max_points: Mapped[float] = mapped_column(Float)
    held: Mapped[bool] = mapped_column(Boolean, default=False)
    report: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    released_at: Mapped[datetime | None]
    released_by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))


class Outbox(Base):
    """What must still be sent to somebody else; written in the transaction it belongs to."""

    __tablename__ = "outbox"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(40))
    key: Mapped[str] = mapped_column(String(100))
    payload: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    not_before: Mapped[datetime]
    tries: Mapped[int] = mapped_column(Integer, default=0)
    done_at: Mapped[datetime | None]
    error: Mapped[str] = mapped_column(Text, default="")
    __table_args__ = (UniqueConstraint("kind", "key"), Index("outbox_open", "done_at", "not_before"))


class Drain(Base):
    """A machine that an operator took out: it finishes what it has and gets nothing new."""

    __tablename__ = "drains"
    machine: Mapped[str] = mapped_column(String(40), primary_key=True)
    why: Mapped[str] = mapped_column(String(200), default="")
    by: Mapped[str] = mapped_column(String(100))
    since: Mapped[datetime]


class InboundWebhook(Base):
    """A webhook that was accepted; a second one with the same id has no effect."""

    __tablename__ = "inbound_webhooks"
    connection: Mapped[str] = mapped_column(String(40), primary_key=True)
    message_id: Mapped[str] = mapped_column(String(200), primary_key=True)
    body_hash: Mapped[str] = mapped_column(String(64))
    submission_id: Mapped[str | None] = mapped_column(ForeignKey("submissions.id"))
    received_at: Mapped[datetime]
    __table_args__ = (Index("inbound_webhooks_by_submission", "submission_id"),)


class Batch(Base):
    """A class zip between its preview and its confirmation."""

    __tablename__ = "batches"
    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"))
    created_by: Mapped[int] = mapped_column(ForeignKey("users.id"))
    sha256: Mapped[str] = mapped_column(ForeignKey("blobs.sha256"))
    filename: Mapped[str] = mapped_column(String(400))
    created_at: Mapped[datetime]
    confirmed_at: Mapped[datetime | None]


class Audit(Base):
    """Who did what to which object, and when. Rows are only added; retention may take the oldest away."""

    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    actor: Mapped[str] = mapped_column(String(100))
    action: Mapped[str] = mapped_column(String(60))
    object: Mapped[str] = mapped_column(String(100), index=True)
    detail: Mapped[dict[str, Any]]
    __table_args__ = (Index("audit_by_time", "at"),)


class Chore(Base):
    """Something to be done again from time to time: the daily retention, withdrawals after an erasure."""

    __tablename__ = "chores"
    name: Mapped[str] = mapped_column(String(100), primary_key=True)
    not_before: Mapped[datetime]
    payload: Mapped[dict[str, Any]]
