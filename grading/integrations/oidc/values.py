"""Values and errors of single sign-on: what a provider publishes, and who somebody is there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from grading.domain.errors import GraderError
from grading.domain.messages import define_message

LONGEST_SUBJECT = 255


class SignOnRefused(GraderError):
    """This sign-in was not accepted."""

    code = "sign_on_refused"
    status = 401
    default_message = define_message("error.sign_on_refused", "This sign-in was not accepted.")


class AccountRefused(SignOnRefused):
    """The provider knows this person, but they have no account in Grader."""

    code = "sign_on_account"
    status = 403
    default_message = define_message(
        "error.sign_on_account", "The provider knows this person, but they have no account in Grader."
    )


class ProviderFailed(SignOnRefused):
    """The provider's answer cannot be used."""

    code = "sign_on_provider"
    status = 502
    default_message = define_message("error.sign_on_provider", "The provider's answer cannot be used.")


def provider_of(issuer: str) -> str:
    """The provider of identities of an issuer: people are known by it and their subject, by nothing else."""
    return f"oidc:{hashlib.sha256(issuer.encode()).hexdigest()[:40]}"


@dataclass(frozen=True)
class Metadata:
    """What a provider publishes of itself, checked."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    auth_method: str
    """How Grader proves to the token endpoint who it is: `client_secret_basic` or `client_secret_post`."""
    algorithms: tuple[str, ...]
    """Those of its ID tokens that Grader knows, too."""
    userinfo_endpoint: str = ""
    end_session_endpoint: str = ""
    names_itself: bool = False
    """It promises its issuer in every authorization response (RFC 9207)."""
    backchannel_logout: bool = False
    backchannel_logout_session: bool = False
    """Its logout tokens name a session."""


@dataclass(frozen=True)
class Grants:
    """What the rules give somebody."""

    fits: bool = False
    """At least one rule does: they may have an account."""
    administrator: bool = False
    courses: Mapping[str, str] = field(default_factory=dict)
    """Short name of a course -> role."""


@dataclass(frozen=True)
class Person:
    """Who signed in, as the provider says."""

    provider: str
    """Of the identity."""
    subject: str
    name: str = ""
    email: str = ""
    """Only if the provider says that it verified the address; it identifies nobody."""
    sign_in_name: str = ""
    """The value of `sign_in_name_claim`; empty for who fits no rule of a provider that has rules."""
    grants: Grants = Grants()


@dataclass(frozen=True)
class Logout:
    """A provider's message that somebody signed out there."""

    subject: str
    """Empty: only the session."""
    session: str
    """The provider's name of the session; empty: all of the subject's."""
    token_id: str
    expires: int
    """Seconds since 1970; after that the message counts no more, and need not be remembered."""
