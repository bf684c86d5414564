"""The names and values of LTI 1.3: a platform, what a launch says, and the errors of both."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from grading.domain.errors import GraderError
from grading.domain.messages import Message, MessageType, define_message

CLAIM = "https://purl.imsglobal.org/spec/lti/claim/"
DEEP = "https://purl.imsglobal.org/spec/lti-dl/claim/"
AGS = "https://purl.imsglobal.org/spec/lti-ags/claim/endpoint"
NRPS = "https://purl.imsglobal.org/spec/lti-nrps/claim/namesroleservice"
ROLE = "http://purl.imsglobal.org/vocab/lis/v2/"
RESOURCE = "LtiResourceLinkRequest"
DEEP_LINKING = "LtiDeepLinkingRequest"
MESSAGES = (RESOURCE, DEEP_LINKING)
SCOPE_LINE_ITEMS = "https://purl.imsglobal.org/spec/lti-ags/scope/lineitem"
SCOPE_RESULTS = "https://purl.imsglobal.org/spec/lti-ags/scope/result.readonly"
SCOPE_SCORES = "https://purl.imsglobal.org/spec/lti-ags/scope/score"
SCOPE_ROSTER = "https://purl.imsglobal.org/spec/lti-nrps/scope/contextmembership.readonly"
SCOPES = (SCOPE_LINE_ITEMS, SCOPE_RESULTS, SCOPE_SCORES, SCOPE_ROSTER)
ASSIGNMENT = "grader_assignment"
"""The custom parameter of a link that was made here: the assignment's number."""
LONGEST_SUBJECT = 255


class LaunchRefused(GraderError):
    """This launch was not accepted."""

    code = "launch_refused"
    status = 401
    default_message = define_message("error.launch_refused", "This launch was not accepted.")


class PlatformRefused(GraderError):
    """This platform cannot be registered like this."""

    code = "platform_refused"
    status = 422
    default_message = define_message(
        "error.platform_refused", "This platform cannot be registered like this."
    )


class PlatformFailed(GraderError):
    """The platform did not do what it was asked."""

    code = "platform_failed"
    status = 502
    default_message = define_message("error.platform_failed", "The platform did not do what it was asked.")

    def __init__(self, message: Message | MessageType | str = "", answered: int | None = None) -> None:
        super().__init__(message)
        self.answered = answered


class PlatformSilent(PlatformFailed):
    """The platform does not answer."""

    default_message = define_message("error.platform_silent", "The platform does not answer.")


@dataclass(frozen=True)
class Platform:
    """A learning platform as it is registered here."""

    id: int
    name: str
    issuer: str
    client_id: str
    authorize_url: str
    token_url: str
    jwks_url: str
    audience: str = ""
    """What its token address wants as audience; empty: that address."""
    origins: tuple[str, ...] = ()
    """Where its pages are, which may show ours in a frame."""
    jwks: Mapping[str, Any] = field(default_factory=dict)

    @property
    def provider(self) -> str:
        """How identities of its people are called."""
        return provider_of(self.issuer)


def provider_of(issuer: str) -> str:
    """The provider of identities of an issuer; short whatever it is called."""
    return f"lti:{hashlib.sha256(issuer.encode()).hexdigest()[:40]}"


@dataclass(frozen=True)
class Launch:
    """What a launch says, checked."""

    subject: str
    name: str
    email: str
    roles: frozenset[str]
    message: str
    deployment: str
    context: str
    context_title: str
    context_label: str
    link: str
    """The resource link; empty for deep linking."""
    link_title: str
    assignment: int | None
    """The assignment a link was made for."""
    nonce: str
    expires: int
    endpoint: Mapping[str, Any]
    """Assignment and grade services, as they were said."""
    roster_url: str
    deep: Mapping[str, Any]
    """Settings of deep linking."""

    @property
    def role(self) -> str:
        """student, grader or instructor."""
        return role_of(self.roles) or "student"


def role_of(roles: frozenset[str] | list[str]) -> str | None:
    """The role here of somebody with these roles in the course there; never an administrator.

    Only roles in the course count: an administrator of the platform is nobody special here.
    """
    here = {_short(one) for one in roles}
    if "Instructor#TeachingAssistant" in here or "TeachingAssistant" in here:
        return "grader"
    if "Instructor" in here:
        return "instructor"
    if here & {"Learner", "Student"}:
        return "student"
    return None


def _short(role: str) -> str:
    """`Instructor` for the role in a course, however long it is written; others are nothing here."""
    for prefix, keep in (
        (f"{ROLE}membership#", ""),
        (f"{ROLE}membership/Instructor#", "Instructor#"),
    ):
        if role.startswith(prefix):
            return keep + role.removeprefix(prefix)
    return role if role in ("Instructor", "Learner", "TeachingAssistant") else ""
