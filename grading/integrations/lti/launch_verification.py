"""Checking a launch: signature, issuer, audience, times, nonce, and every claim that is used later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grading.domain.messages import define_message
from grading.integrations import signed_tokens
from grading.integrations.lti.values import (
    AGS,
    ASSIGNMENT,
    CLAIM,
    DEEP,
    DEEP_LINKING,
    LONGEST_SUBJECT,
    MESSAGES,
    NRPS,
    RESOURCE,
    Launch,
    LaunchRefused,
    Platform,
    address_of,
)
from grading.integrations.signed_tokens import TokenErrors, moment_of
from grading.integrations.told_texts import name_of, text_of

NOT_RS256 = define_message("lti_launch.not_rs256", "The launch is not signed with RS256.")
CONTENT_UNREADABLE = define_message(
    "lti_launch.content_unreadable", "The content of the launch cannot be read."
)
NOT_LTI_1_3 = define_message("lti_launch.not_lti_1_3", "The launch is not an LTI 1.3 launch.")
MESSAGE_TYPE_UNKNOWN = define_message(
    "lti_launch.message_type_unknown", "Grader does not support LTI messages of the type '%(kind)s'."
)
NO_RESOURCE_LINK = define_message("lti_launch.no_resource_link", "The launch has no resource link.")
NO_RETURN_ADDRESS = define_message(
    "lti_launch.no_return_address", "The launch has no return URL for the chosen assignment."
)
OTHER_ISSUER = define_message(
    "lti_launch.other_issuer", "The issuer of the launch is not the registered one."
)
OTHER_AUDIENCE = define_message(
    "lti_launch.other_audience", "The launch is for another tool: its audience is not Grader's client ID."
)
OTHER_AUTHORIZED_PARTY = define_message(
    "lti_launch.other_authorized_party",
    "The launch is for another tool: its authorized party is not Grader's client ID.",
)
TOO_OLD = define_message(
    "lti_launch.too_old", "The launch has expired. Open the assignment in the learning platform again."
)
FROM_THE_FUTURE = define_message(
    "lti_launch.from_the_future",
    "The launch was issued in the future: the clocks of the platform "
    "and of this server differ. Correct them.",
)
VALID_TOO_LONG = define_message(
    "lti_launch.valid_too_long", "The launch is valid for too long: at most 1 hour is allowed."
)
BAD_CLAIM = define_message("lti_launch.bad_claim", "The launch has no valid '%(name)s'.")
BAD_TEXT_CLAIM = define_message(
    "lti_launch.bad_text_claim", "The launch has no valid '%(name)s': 1 to %(most)s printable characters."
)
CLAIM_WITH_BLANKS = define_message(
    "lti_launch.claim_with_blanks", "The '%(name)s' of the launch begins or ends with a space."
)
NO_ROLES = define_message("lti_launch.no_roles", "The launch has no roles.")
KEY_ID_UNREADABLE = define_message("lti_launch.key_id_unreadable", "The launch has no valid key ID.")
KEY_TOO_SHORT = define_message(
    "lti_launch.key_too_short", "The platform's key is too short: at least %(least)s bits are required."
)
NOT_SIGNED = define_message("lti_launch.not_signed", "The launch is not a signed token (JWT).")
PART_UNREADABLE = define_message("lti_launch.part_unreadable", "The %(what)s of the launch cannot be read.")
SIGNATURE_WRONG = define_message("lti_launch.signature_wrong", "The signature of the launch is not valid.")
KEY_UNREADABLE = define_message("lti_launch.key_unreadable", "The platform's key cannot be read.")

ALGORITHMS = ("RS256",)
"""The one that LTI asks for. `none` and HMAC, whose key would be the public one, are never accepted."""
LEEWAY_S = 60
LONGEST_S = 3600
"""A launch that is valid for longer is not: its nonce is kept only so long."""


class UnknownKey(LaunchRefused):
    """The launch is signed with a key that the platform does not publish."""

    default_message = define_message(
        "error.unknown_key", "The launch is signed with a key that the platform does not publish."
    )


ERRORS = TokenErrors(
    refused=LaunchRefused,
    unknown_key=UnknownKey,
    not_signed=NOT_SIGNED,
    part_unreadable=PART_UNREADABLE,
    content_unreadable=CONTENT_UNREADABLE,
    algorithm=NOT_RS256,
    signature=SIGNATURE_WRONG,
    key_id=KEY_ID_UNREADABLE,
    key_unreadable=KEY_UNREADABLE,
    key_too_short=KEY_TOO_SHORT,
    issuer=OTHER_ISSUER,
    audience=OTHER_AUDIENCE,
    authorized_party=OTHER_AUTHORIZED_PARTY,
)


def header_of(token: str) -> dict[str, Any]:
    """The header, not checked by anybody. Raises LaunchRefused."""
    return signed_tokens.header_of(token, ERRORS)


def verified(token: str, jwks: Mapping[str, Any]) -> dict[str, Any]:
    """The claims of a token signed with one of these keys. Raises UnknownKey, LaunchRefused."""
    return signed_tokens.verified(token, jwks, ALGORITHMS, ERRORS)


def checked(claims: Mapping[str, Any], platform: Platform, moment: float) -> Launch:
    """What the claims say, for this platform, at this time in seconds. Raises LaunchRefused."""
    signed_tokens.require_addressed(claims, platform.issuer, platform.client_id, ERRORS)
    expires = _in_time(claims, moment)
    if claims.get(f"{CLAIM}version") != "1.3.0":
        raise LaunchRefused(NOT_LTI_1_3)
    message = _text(claims, f"{CLAIM}message_type", 100)
    if message not in MESSAGES:
        raise LaunchRefused(MESSAGE_TYPE_UNKNOWN(kind=message[:60]))
    context, link = _object(claims, f"{CLAIM}context"), _object(claims, f"{CLAIM}resource_link")
    if message == RESOURCE and not link.get("id"):
        raise LaunchRefused(NO_RESOURCE_LINK)
    deep = _object(claims, f"{DEEP}deep_linking_settings")
    if message == DEEP_LINKING and not isinstance(deep.get("deep_link_return_url"), str):
        raise LaunchRefused(NO_RETURN_ADDRESS)
    custom = _object(claims, f"{CLAIM}custom").get(ASSIGNMENT)
    roster = _object(claims, NRPS).get("context_memberships_url")
    return Launch(
        subject=_text(claims, "sub", LONGEST_SUBJECT),
        name=name_of(claims),
        email=text_of(claims.get("email")),
        roles=_roles(claims),
        message=message,
        deployment=_text(claims, f"{CLAIM}deployment_id", 255),
        context=_text(context, "id", 255),
        context_title=text_of(context.get("title")),
        context_label=text_of(context.get("label")),
        link=_text(link, "id", 255) if message == RESOURCE else "",
        link_title=text_of(link.get("title")),
        assignment=int(custom) if isinstance(custom, str | int) and _number(str(custom)) else None,
        nonce=_text(claims, "nonce", 255),
        expires=expires,
        endpoint=_object(claims, AGS),
        roster_url=roster if isinstance(roster, str) else "",
        deep=deep,
        platform_family=text_of(
            _object(claims, f"{CLAIM}tool_platform").get("product_family_code"), 40
        ).lower(),
        return_url=address_of(_object(claims, f"{CLAIM}launch_presentation").get("return_url")),
    )


def _in_time(claims: Mapping[str, Any], moment: float) -> int:
    """When it expires."""
    expires, issued = (_moment(claims, name) for name in ("exp", "iat"))
    if expires <= moment - LEEWAY_S:
        raise LaunchRefused(TOO_OLD)
    if issued > moment + LEEWAY_S or ("nbf" in claims and _moment(claims, "nbf") > moment + LEEWAY_S):
        raise LaunchRefused(FROM_THE_FUTURE)
    if issued < moment - LONGEST_S or expires > moment + LONGEST_S + LEEWAY_S:
        raise LaunchRefused(VALID_TOO_LONG)
    return int(expires)


def _moment(claims: Mapping[str, Any], name: str) -> float:
    found = moment_of(claims, name)
    if found is None:
        raise LaunchRefused(BAD_CLAIM(name=name))
    return found


def _text(claims: Mapping[str, Any], name: str, longest: int) -> str:
    value = claims.get(name)
    short = name.removeprefix(CLAIM)
    if not isinstance(value, str) or not 0 < len(value) <= longest or not value.isprintable():
        raise LaunchRefused(BAD_TEXT_CLAIM(name=short, most=longest))
    if value != value.strip():
        raise LaunchRefused(CLAIM_WITH_BLANKS(name=short))
    return value


def _object(claims: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = claims.get(name)
    return value if isinstance(value, dict) else {}


def _roles(claims: Mapping[str, Any]) -> frozenset[str]:
    value = claims.get(f"{CLAIM}roles")
    if not isinstance(value, list):
        raise LaunchRefused(NO_ROLES)
    return frozenset(one for one in value[:200] if isinstance(one, str))


def _number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10
