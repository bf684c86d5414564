"""The tables; rules of uniqueness are constraints here.

Queries belong to the package of their capability.
"""

from grading.store.tables.assignments import (
    Assignment,
    Batch,
    Blob,
    Extension,
    GroupMember,
    MailWish,
    RubricVersion,
    Submission,
    SubmissionFile,
    SubmissionMember,
    Upload,
    UploadFile,
)
from grading.store.tables.base import Base, Id, UtcDateTime, new_id
from grading.store.tables.change_tracking import Touch
from grading.store.tables.messages import EventReceiver, SentMessage, WebhookSecret
from grading.store.tables.operations import (
    Audit,
    Chore,
    Drain,
    IdempotencyKey,
    InboundWebhook,
    KeptTrial,
    Outbox,
)
from grading.store.tables.people import (
    Course,
    Identity,
    Membership,
    OpenSession,
    ResetLink,
    SignInTry,
    Token,
    User,
)
from grading.store.tables.reviewing import (
    Change,
    DryRun,
    DryRunRound,
    Example,
    Mark,
    RegradeRequest,
    SavedComment,
)
from grading.store.tables.rounds import Grade, Prompt, Round, RoundStage, Run, SystemMessage

__all__ = [
    "Assignment",
    "Audit",
    "Base",
    "Batch",
    "Blob",
    "Change",
    "Chore",
    "Course",
    "Drain",
    "DryRun",
    "DryRunRound",
    "EventReceiver",
    "Example",
    "Extension",
    "Grade",
    "GroupMember",
    "Id",
    "IdempotencyKey",
    "Identity",
    "InboundWebhook",
    "KeptTrial",
    "MailWish",
    "Mark",
    "Membership",
    "OpenSession",
    "Outbox",
    "Prompt",
    "RegradeRequest",
    "ResetLink",
    "Round",
    "RoundStage",
    "RubricVersion",
    "Run",
    "SavedComment",
    "SentMessage",
    "SignInTry",
    "Submission",
    "SubmissionFile",
    "SubmissionMember",
    "SystemMessage",
    "Token",
    "Touch",
    "Upload",
    "UploadFile",
    "User",
    "UtcDateTime",
    "WebhookSecret",
    "new_id",
]
