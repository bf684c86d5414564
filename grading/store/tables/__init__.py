"""The tables; rules of uniqueness are constraints here.

Queries belong to the package of their capability.
"""

from grading.store.tables.assignments import (
    Assignment,
    Blob,
    ClassUpload,
    Extension,
    GroupMember,
    MailPreference,
    RubricVersion,
    Submission,
    SubmissionFile,
    SubmissionMember,
    Upload,
    UploadFile,
)
from grading.store.tables.base import Base, Id, UtcDateTime, new_id
from grading.store.tables.change_tracking import ChangeMarker
from grading.store.tables.messages import EventReceiver, SentMessage, WebhookSecret
from grading.store.tables.operations import (
    Audit,
    CachedExecution,
    Drain,
    IdempotencyKey,
    InboundWebhook,
    Outbox,
    PeriodicTask,
)
from grading.store.tables.people import (
    Course,
    Identity,
    Membership,
    OpenSession,
    ResetLink,
    SignInAttempt,
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
    "ClassUpload",
    "Blob",
    "Change",
    "PeriodicTask",
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
    "CachedExecution",
    "MailPreference",
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
    "SignInAttempt",
    "Submission",
    "SubmissionFile",
    "SubmissionMember",
    "SystemMessage",
    "Token",
    "ChangeMarker",
    "Upload",
    "UploadFile",
    "User",
    "UtcDateTime",
    "WebhookSecret",
    "new_id",
]
