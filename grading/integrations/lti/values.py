"""The names and values of LTI 1.3: a platform, what a launch says, and the errors of both."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
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
    again = True
    """Whether opening it in the platform again may help."""


class PlatformRefused(GraderError):
    """The platform cannot be registered with these values."""

    code = "platform_refused"
    status = 422
    default_message = define_message(
        "error.platform_refused", "The platform cannot be registered with these values."
    )


class PlatformFailed(GraderError):
    """The platform refused the request."""

    code = "platform_failed"
    status = 502
    default_message = define_message("error.platform_failed", "The platform refused the request.")

    def __init__(
        self,
        message: Message | MessageType | str = "",
        answered: int | None = None,
        retry_after_s: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.answered = answered
        self.retry_after_s = retry_after_s
        """Seconds that it asks to be left alone."""


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
    family: str = ""
    """The product as it names itself, such as `canvas` or `moodle`; empty until it does."""
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

    platform_family: str = ""
    """The product as the platform names it, such as `canvas` or `moodle`."""
    return_url: str = ""
    """Where the platform wants its people back; empty where it does not say."""

    @property
    def role(self) -> str | None:
        """student, grader, instructor, or None for a role in the course that is nothing here."""
        return role_of(self.roles)


TEACHING_ASSISTANT = frozenset(
    {"Grader"}
    | {
        f"TeachingAssistant{part}"
        for part in ("", "Group", "Offering", "Section", "SectionAssociation", "Template")
    }
)
"""Sub-roles of Instructor in LTI 1.3, appendix A.2.3, of who grades without owning the course."""
BARE = frozenset({"Instructor", "Learner", "Student", "TeachingAssistant"})
"""Roles in the course that a platform may write without their vocabulary; Moodle's roster does."""


def role_of(roles: Iterable[str]) -> str | None:
    """The role here of somebody with these roles in the course there; never an administrator.

    Only roles in the course count, and of those Instructor, Learner and their sub-roles: an administrator,
    designer, mentor or observer is nobody here. docs/reference/lti.md has the whole table.
    """
    here = {role for one in roles if (role := _role_in_course(one)) is not None}
    return next((role for role in ("grader", "instructor", "student") if role in here), None)


def learns(roles: Iterable[str]) -> bool:
    """Whether one of these roles in the course is a learner's: who else has no place in its gradebook."""
    return any(_role_in_course(one) == "student" for one in roles)


def _role_in_course(role: str) -> str | None:
    """What one role means, as `…membership#Instructor`, `…membership/Instructor#Grader`, or bare."""
    main, _, sub = role.removeprefix(f"{ROLE}membership").partition("#")
    if role in BARE:
        main, sub = "", role
    elif not role.startswith(f"{ROLE}membership"):
        return None
    if sub == "TeachingAssistant" or (main == "/Instructor" and sub in TEACHING_ASSISTANT):
        return "grader"
    if main == "/Instructor" or (not main and sub == "Instructor"):
        return "instructor"
    if main == "/Learner" or (not main and sub in ("Learner", "Student")):
        return "student"
    return None


def address_of(value: object, longest: int = 1000) -> str:
    """An address of the web that a platform said; empty for anything else."""
    good = isinstance(value, str) and value.isprintable() and len(value) <= longest
    return str(value) if good and str(value).startswith(("https://", "http://")) else ""


def page_of(platform: Platform, launch: Launch) -> str:
    """The page of a link in the platform, or of its course, for people; empty where the claims show none.

    Moodle's `mod/lti/view.php` takes the number of a link; Canvas' return address lies below its course.
    """
    if launch.platform_family == "moodle" and launch.link.isdecimal():
        return f"{platform.issuer.rstrip('/')}/mod/lti/view.php?l={launch.link}"
    found = re.match(r"https?://[^/?#]+/courses/[0-9~]+(?=/)", launch.return_url)
    return found[0] if found and launch.platform_family == "canvas" else ""
