"""Tables of assignments: versions, submissions, groups, extensions, files."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    Boolean,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column, relationship

from grading.domain.jobs import ENGLISH
from grading.store.tables.base import Base, Id, new_id
from grading.store.tables.people import Course, User

TO_MOVE: dict[str, Any] = dict.fromkeys(
    ("sqlite_where", "postgresql_where"), text("object_key IS NULL AND size > 65536")
)
"""The condition of the index of blobs that may be moved: larger than `LEAST_KB` of grading.config.files."""
SAMPLE = "sample"
"""Source of submissions made of a starter or solution to try a rubric; they have no current round."""


class Assignment(Base):
    """A piece of homework. Rubric and material are in versions; the one published last counts."""

    __tablename__ = "assignments"
    id: Mapped[int] = mapped_column(primary_key=True)
    course_id: Mapped[int] = mapped_column(ForeignKey("courses.id"))
    slug: Mapped[str] = mapped_column(String(64))
    title: Mapped[str] = mapped_column(String(200))
    language: Mapped[str] = mapped_column(String(32), default="")
    release: Mapped[str] = mapped_column(String(20), default="after_review")
    due_at: Mapped[datetime | None]
    """Submissions after it are late: graded all the same, with the credit that `late` leaves."""
    release_at: Mapped[datetime | None]
    """When grades are released automatically, where `release` is `at`."""
    late: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """The fields of a `grading.domain.lateness.LateRule`; empty: no penalty."""
    max_submissions: Mapped[int | None]
    """Limit for each student; None: no limit."""
    group_size: Mapped[int] = mapped_column(Integer, default=1)
    """Largest group that submits together; 1: no groups."""
    counts: Mapped[str] = mapped_column(String(10), default="latest")
    """Which of a student's submissions counts: `latest` or `best`."""
    visible: Mapped[bool] = mapped_column(Boolean, default=True)
    """Whether students see it."""
    code_editor: Mapped[bool] = mapped_column(Boolean, default=False, server_default=false())
    """Whether students may write and check their code in the browser."""
    second_opinion: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default=text("'{}'"))
    """The fields of a `grading.domain.second_opinions.SecondOpinionPolicy`; empty: none."""
    created_at: Mapped[datetime]
    course: Mapped[Course] = relationship()
    __table_args__ = (UniqueConstraint("course_id", "slug"),)


class RubricVersion(Base):
    """One version of an assignment's rubric, instructions, starter, solution and settings; immutable."""

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
    spoken_language: Mapped[str] = mapped_column(String(40), default=ENGLISH)
    """The language of feedback, by its English name."""
    show_draft: Mapped[bool] = mapped_column(Boolean, default=False)
    """Students may see partial output while it is generated."""
    files: Mapped[dict[str, Any]]
    """Path -> SHA-256 of a blob."""
    created_at: Mapped[datetime]
    created_by: Mapped[int | None]
    """Id of a user."""
    published_at: Mapped[datetime | None]
    """Since when it may count; drafts have none."""
    note: Mapped[str] = mapped_column(Text, default="")
    """What was changed and why."""
    __table_args__ = (UniqueConstraint("assignment_id", "number"),)


class Blob(Base):
    """Bytes stored once under their SHA-256."""

    __tablename__ = "blobs"
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    size: Mapped[int]
    data: Mapped[bytes] = mapped_column(LargeBinary)
    """Empty where the bytes are in the object store."""
    object_key: Mapped[str | None] = mapped_column(String(100))
    """Key of the object with the bytes; of this row alone, and never used again."""
    __table_args__ = (Index("blobs_to_move", "size", **TO_MOVE),)


class UnusedObject(Base):
    """An object that no blob refers to: one that is being written, or one to be deleted."""

    __tablename__ = "unused_objects"
    key: Mapped[str] = mapped_column(String(100), primary_key=True)
    delete_at: Mapped[datetime] = mapped_column(index=True)


class Submission(Base):
    """One submission of a student; the student's `number`-th for this assignment."""

    __tablename__ = "submissions"
    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"))
    student_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    number: Mapped[int]
    """From 1; lower for those of source SAMPLE, which belong to nobody."""
    source: Mapped[str] = mapped_column(String(20))
    documents: Mapped[list[Any]]
    notes: Mapped[list[Any]]
    submitted_by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    created_at: Mapped[datetime]
    fingerprint: Mapped[str] = mapped_column(String(64), default="")
    """Hash of all its files, as on the receipt: see `grading.store.submissions.receipts`."""
    assignment: Mapped[Assignment] = relationship()
    student: Mapped[User] = relationship(foreign_keys=[student_id])
    __table_args__ = (
        UniqueConstraint("assignment_id", "student_id", "number"),
        Index("submissions_by_time", "created_at"),
        Index("submissions_of_assignment", "assignment_id", "created_at", "id"),
        # holds all that lists and cards of a student ask for
        Index("submissions_of_student", "student_id", "assignment_id", "number", "created_at", "id"),
    )


class SubmissionMember(Base):
    """A user the submission counts for beside the student who submitted it: a member of the group."""

    __tablename__ = "submission_members"
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), primary_key=True, index=True)


class MailPreference(Base):
    """Whether a user wants mail when the result of this submission is visible to them."""

    __tablename__ = "mail_preferences"
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), primary_key=True, index=True)
    wanted: Mapped[bool] = mapped_column(Boolean)


class GroupMember(Base):
    """Membership in a group of an assignment; a student is in one group at most."""

    __tablename__ = "group_members"
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), primary_key=True, index=True)
    group_id: Mapped[str] = mapped_column(Id, index=True)
    confirmed: Mapped[bool] = mapped_column(Boolean, default=False)
    """The student accepted the invitation, or staff made the group."""


class Extension(Base):
    """A later due date for one student."""

    __tablename__ = "extensions"
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"), primary_key=True)
    student_id: Mapped[int] = mapped_column(ForeignKey("users.id"), primary_key=True, index=True)
    due_at: Mapped[datetime]
    reason: Mapped[str] = mapped_column(Text, default="")
    by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    at: Mapped[datetime]


class SubmissionFile(Base):
    """A file of a submission."""

    __tablename__ = "submission_files"
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), primary_key=True)
    path: Mapped[str] = mapped_column(String(400), primary_key=True)
    sha256: Mapped[str] = mapped_column(ForeignKey("blobs.sha256"), index=True)
    size: Mapped[int]


class Upload(Base):
    """Files that a user uploaded and has not submitted yet; at most one for each user and assignment."""

    __tablename__ = "uploads"
    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"))
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    form_key: Mapped[str] = mapped_column(String(64), default="")
    """Key of the form they were sent by: a page looks it up after a lost connection."""
    documents: Mapped[list[Any]] = mapped_column(deferred=True)
    notes: Mapped[list[Any]]
    reading: Mapped[dict[str, Any]]
    """The fields of a `grading.checks.upload_notes.Reading`."""
    fingerprint: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime]
    """When the last byte arrived."""
    __table_args__ = (
        UniqueConstraint("assignment_id", "user_id"),
        Index("uploads_by_time", "created_at"),
    )


class UploadFile(Base):
    """A file of an upload."""

    __tablename__ = "upload_files"
    upload_id: Mapped[str] = mapped_column(ForeignKey("uploads.id"), primary_key=True)
    path: Mapped[str] = mapped_column(String(400), primary_key=True)
    sha256: Mapped[str] = mapped_column(ForeignKey("blobs.sha256"), index=True)
    size: Mapped[int]


class Precheck(Base):
    """Code that a student had checked before submitting; the last one for each user and assignment."""

    __tablename__ = "prechecks"
    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"))
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    source: Mapped[str] = mapped_column(Text)
    documents: Mapped[list[Any]] = mapped_column(deferred=True)
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    """When a sandbox worker began with it."""
    finished_at: Mapped[datetime | None]
    outcome: Mapped[dict[str, Any] | None]
    """The fields of a `grading.checks.precheck.PrecheckOutcome`."""
    __table_args__ = (
        UniqueConstraint("assignment_id", "user_id"),
        Index("prechecks_by_time", "created_at"),
    )


class ClassUpload(Base):
    """A class zip between its preview and its confirmation."""

    __tablename__ = "class_uploads"
    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignments.id"))
    created_by: Mapped[int] = mapped_column(ForeignKey("users.id"))
    sha256: Mapped[str] = mapped_column(ForeignKey("blobs.sha256"))
    filename: Mapped[str] = mapped_column(String(400))
    created_at: Mapped[datetime]
    confirmed_at: Mapped[datetime | None]
