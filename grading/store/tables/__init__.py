"""The tables. The uniqueness rules of the invariants are constraints here, not habits of the code."""

from grading.store.tables.assignments import (
    Assignment,
    Batch,
    Blob,
    RubricVersion,
    Submission,
    SubmissionFile,
)
from grading.store.tables.base import Base, Id, UtcDateTime, new_id
from grading.store.tables.operations import (
    Audit,
    Chore,
    Drain,
    IdempotencyKey,
    InboundWebhook,
    KeptTrial,
    Outbox,
)
from grading.store.tables.people import Course, Identity, Membership, Token, User
from grading.store.tables.rounds import Grade, Prompt, Round, RoundStage, Run, SystemMessage

__all__ = [
    "Assignment",
    "Audit",
    "Base",
    "Batch",
    "Blob",
    "Chore",
    "Course",
    "Drain",
    "Grade",
    "Id",
    "IdempotencyKey",
    "Identity",
    "InboundWebhook",
    "KeptTrial",
    "Membership",
    "Outbox",
    "Prompt",
    "Round",
    "RoundStage",
    "RubricVersion",
    "Run",
    "Submission",
    "SubmissionFile",
    "SystemMessage",
    "Token",
    "User",
    "UtcDateTime",
    "new_id",
]
