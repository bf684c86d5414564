"""Checking what a provider signed: ID tokens (OpenID Connect Core, 3.1.3.7) and logout tokens.

Plain functions of claims, a provider and a moment, as for LTI; Authlib's own check takes any algorithm that
the provider lists, and an audience that is not ours (decision 0072).
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

from grading.domain.messages import define_message
from grading.integrations import signed_tokens
from grading.integrations.oidc.values import LONGEST_SUBJECT, Logout, SignOnRefused
from grading.integrations.signed_tokens import TokenErrors, moment_of

NOT_SIGNED = define_message("sign_on.not_signed", "The provider's answer has no signed token (JWT).")
PART_UNREADABLE = define_message(
    "sign_on.part_unreadable", "The %(what)s of the provider's token cannot be read."
)
CONTENT_UNREADABLE = define_message(
    "sign_on.content_unreadable", "The content of the provider's token cannot be read."
)
ALGORITHM = define_message(
    "sign_on.algorithm",
    "The provider's token is signed with an algorithm that Grader does not accept from it.",
)
SIGNATURE_WRONG = define_message(
    "sign_on.signature_wrong", "The signature of the provider's token is not valid."
)
KEY_ID_UNREADABLE = define_message("sign_on.key_id_unreadable", "The provider's token has no valid key ID.")
KEY_UNREADABLE = define_message("sign_on.key_unreadable", "The provider's key cannot be read.")
KEY_TOO_SHORT = define_message(
    "sign_on.key_too_short", "The provider's key is too short: at least %(least)s bits are required."
)
UNKNOWN_KEY = define_message(
    "error.sign_on_unknown_key", "The token is signed with a key that the provider does not publish."
)
OTHER_ISSUER = define_message("sign_on.other_issuer", "The token is from another issuer than this provider.")
OTHER_AUDIENCE = define_message(
    "sign_on.other_audience", "The token is not for Grader alone: its audience is another application."
)
OTHER_PARTY = define_message(
    "sign_on.other_party", "The token is for another application: its authorized party is not Grader."
)
OTHER_TYPE = define_message("sign_on.other_type", "The token is of another type than this message needs.")
BAD_CLAIM = define_message("sign_on.bad_claim", "The provider's token has no valid '%(name)s'.")
EXPIRED = define_message(
    "sign_on.expired",
    "The provider's token has expired. Sign in again. If it happens again, the clocks of the provider "
    "and of this server differ.",
)
FROM_THE_FUTURE = define_message(
    "sign_on.from_the_future",
    "The provider's token was issued in the future: the clocks of the provider and of this server differ.",
)
TOO_OLD = define_message(
    "sign_on.too_old",
    "The provider's token is not new: it was issued more than 10 minutes ago, or the clocks of the "
    "provider and of this server differ.",
)
OTHER_NONCE = define_message("sign_on.other_nonce", "The token belongs to another sign-in. Sign in again.")
OTHER_ACCESS_TOKEN = define_message(
    "sign_on.other_access_token", "The ID token was not issued with this access token."
)
OTHER_SUBJECT = define_message(
    "sign_on.other_subject", "The provider's user info is about another person than its ID token."
)
NO_LOGOUT_EVENT = define_message(
    "sign_on.no_logout_event", "The token is no logout token: it has no logout event."
)
LOGOUT_NONCE = define_message("sign_on.logout_nonce", "A logout token must not have a nonce.")
NO_AUTH_TIME = define_message(
    "sign_on.no_auth_time",
    "The provider does not say when you signed in there ('auth_time'), so Grader cannot tell that it was "
    "just now. Ask an administrator of Grader.",
)
NOT_FRESH = define_message(
    "sign_on.not_fresh",
    "You did not sign in at the provider again: it still knew you from before. Sign out there, then try "
    "again.",
)
LOGOUT_OF_NOBODY = define_message(
    "sign_on.logout_of_nobody", "The logout token names neither a person nor a session."
)

ALGORITHMS = ("RS256", "PS256", "ES256")
"""All with SHA-256, which `at_hash` uses, too."""
LEEWAY_S = 60
NEW_S = 600
"""A token that was asked for just now was issued just now."""
LOGOUT_S = 3600
"""A logout token that is valid for longer is remembered only so long; its end is taken as that."""
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"


class UnknownKey(SignOnRefused):
    """The token is signed with a key that the provider does not publish."""

    default_message = UNKNOWN_KEY


ERRORS = TokenErrors(
    refused=SignOnRefused,
    unknown_key=UnknownKey,
    not_signed=NOT_SIGNED,
    part_unreadable=PART_UNREADABLE,
    content_unreadable=CONTENT_UNREADABLE,
    algorithm=ALGORITHM,
    signature=SIGNATURE_WRONG,
    key_id=KEY_ID_UNREADABLE,
    key_unreadable=KEY_UNREADABLE,
    key_too_short=KEY_TOO_SHORT,
    issuer=OTHER_ISSUER,
    audience=OTHER_AUDIENCE,
    authorized_party=OTHER_PARTY,
)


def verified(token: str, jwks: Mapping[str, Any], algorithms: tuple[str, ...]) -> dict[str, Any]:
    """The claims of a token signed with one of these keys. Raises UnknownKey, SignOnRefused."""
    return signed_tokens.verified(token, jwks, algorithms, ERRORS)


def require_type(token: str, *allowed: str) -> None:
    """Go on with a token of one of these types, or of none. Raises SignOnRefused."""
    kind = signed_tokens.header_of(token, ERRORS).get("typ")
    if kind is not None and str(kind).lower().removeprefix("application/") not in allowed:
        raise SignOnRefused(OTHER_TYPE)


def check_id_token(
    claims: Mapping[str, Any], issuer: str, client_id: str, nonce: str, access_token: str, moment: float
) -> str:
    """The subject of an ID token whose signature was verified, at this time. Raises SignOnRefused."""
    _require_addressed(claims, issuer, client_id)
    _in_time(claims, moment)
    if not hmac.compare_digest(_text(claims, "nonce").encode(), nonce.encode()):
        raise SignOnRefused(OTHER_NONCE)
    if "at_hash" in claims and claims["at_hash"] != half_hash(access_token):
        raise SignOnRefused(OTHER_ACCESS_TOKEN)
    return _text(claims, "sub")


def require_fresh(claims: Mapping[str, Any], since: float, *, told: bool) -> None:
    """Go on with somebody who signed in at the provider after this time (OpenID Connect Core, 3.1.3.7, 13).

    With `told`, the provider must say when that was; else what it does not say is not asked for. Raises
    SignOnRefused.
    """
    if "auth_time" not in claims and not told:
        return
    found = moment_of(claims, "auth_time")
    if found is None:
        raise SignOnRefused(NO_AUTH_TIME)
    if found < since - LEEWAY_S:
        raise SignOnRefused(NOT_FRESH)


def check_user_info(found: Mapping[str, Any], subject: str) -> None:
    """Go on with user info of this subject. Raises SignOnRefused."""
    if found.get("sub") != subject:
        raise SignOnRefused(OTHER_SUBJECT)


def check_logout_token(claims: Mapping[str, Any], issuer: str, client_id: str, moment: float) -> Logout:
    """What a verified logout token says (OpenID Connect Back-Channel Logout, 2.6). Raises SignOnRefused."""
    _require_addressed(claims, issuer, client_id)
    expires = min(_in_time(claims, moment), moment + LOGOUT_S)
    events = claims.get("events")
    if not isinstance(events, dict) or not isinstance(events.get(LOGOUT_EVENT), dict):
        raise SignOnRefused(NO_LOGOUT_EVENT)
    if "nonce" in claims:
        raise SignOnRefused(LOGOUT_NONCE)
    subject, session = (_text(claims, name) if name in claims else "" for name in ("sub", "sid"))
    if not subject and not session:
        raise SignOnRefused(LOGOUT_OF_NOBODY)
    return Logout(subject, session, _text(claims, "jti"), int(expires))


def half_hash(access_token: str) -> str:
    """The left half of the SHA-256 of an access token, as `at_hash` has it."""
    return urlsafe_b64encode(hashlib.sha256(access_token.encode()).digest()[:16]).decode().rstrip("=")


def session_of(claims: Mapping[str, Any]) -> str:
    """The provider's name of the session (`sid`); empty where it has none that can be kept."""
    found = claims.get("sid")
    return found if isinstance(found, str) and found.isprintable() and len(found) <= LONGEST_SUBJECT else ""


def _require_addressed(claims: Mapping[str, Any], issuer: str, client_id: str) -> None:
    """Go on with a token for this client alone: no other audience is trusted (Core, 3.1.3.7, 3)."""
    signed_tokens.require_addressed(claims, issuer, client_id, ERRORS)
    if claims["aud"] not in (client_id, [client_id]):
        raise SignOnRefused(OTHER_AUDIENCE)


def _in_time(claims: Mapping[str, Any], moment: float) -> float:
    """When it expires."""
    times = {name: moment_of(claims, name) for name in ("exp", "iat", "nbf")}
    for name, found in times.items():
        if found is None and (name != "nbf" or name in claims):
            raise SignOnRefused(BAD_CLAIM(name=name))
    expires, issued = times["exp"] or 0.0, times["iat"] or 0.0
    if expires <= moment - LEEWAY_S:
        raise SignOnRefused(EXPIRED)
    if max(issued, times["nbf"] or 0.0) > moment + LEEWAY_S:
        raise SignOnRefused(FROM_THE_FUTURE)
    if issued < moment - NEW_S:
        raise SignOnRefused(TOO_OLD)
    return expires


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_SUBJECT or not value.isprintable():
        raise SignOnRefused(BAD_CLAIM(name=name))
    if value != value.strip():
        raise SignOnRefused(BAD_CLAIM(name=name))
    return value
