"""Client of Grader's HTTP API for other programs, which verifies signed events, too."""

from __future__ import annotations

from grader_client.answers import Accepted, Released, Result, Submission, SubmissionItem
from grader_client.client import Client
from grader_client.errors import (
    ApiError,
    Changed,
    ClientError,
    Conflict,
    Forbidden,
    InvalidRequest,
    InvalidWebhook,
    NotFound,
    NotGradedYet,
    NotSignedIn,
    ServerAway,
    ServerFailed,
    TooManyRequests,
)
from grader_client.webhooks import verify_webhook

__all__ = [
    "Accepted",
    "ApiError",
    "Changed",
    "Client",
    "ClientError",
    "Conflict",
    "Forbidden",
    "InvalidRequest",
    "InvalidWebhook",
    "NotFound",
    "NotGradedYet",
    "NotSignedIn",
    "Released",
    "Result",
    "ServerAway",
    "ServerFailed",
    "Submission",
    "SubmissionItem",
    "TooManyRequests",
    "verify_webhook",
]
