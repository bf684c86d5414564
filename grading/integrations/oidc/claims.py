"""Claims → who somebody is and what the rules of config.toml give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grading.config.sign_on import Provider, Rule
from grading.domain.messages import define_message
from grading.integrations.oidc.values import Grants, Person, SignOnRefused, provider_of
from grading.integrations.told_texts import name_of, text_of

EMAIL_UNVERIFIED = define_message(
    "sign_on.email_unverified",
    "The provider does not say that it verified your email address, so Grader cannot use it to find out "
    "who you are.",
)
BAD_SIGN_IN_NAME = define_message(
    "sign_on.bad_sign_in_name",
    "The provider's '%(claim)s', which is to be your sign-in name here, is not 1 to 200 "
    "printable characters.",
)

RANKS = ("student", "grader", "instructor")
MOST_VALUES = 2000
EMAIL = "email"


def person_of(
    provider: Provider, subject: str, id_claims: Mapping[str, Any], user_info: Mapping[str, Any]
) -> Person:
    """Who signed in. What the ID token says counts before what user info says. Raises SignOnRefused."""
    claims = {**user_info, **id_claims}
    email, verified = _email(id_claims if EMAIL in id_claims else user_info)
    asks_email = EMAIL in (provider.sign_in_name_claim, *(rule.claim for rule in provider.rules))
    if asks_email and claims.get(EMAIL) not in (None, "") and not (email and verified):
        raise SignOnRefused(EMAIL_UNVERIFIED)
    name, grants = _sign_in_name(provider, claims), grants_of(provider.rules, claims)
    return Person(
        provider=provider_of(provider.issuer),
        subject=subject,
        name=name_of(claims) or text_of(claims.get("preferred_username")),
        email=email if verified else "",
        # or who is not let in by the rules would come in by an account that is there
        sign_in_name=name if grants.fits or not provider.rules else "",
        grants=grants,
    )


def grants_of(rules: tuple[Rule, ...], claims: Mapping[str, Any]) -> Grants:
    """What the rules give; of several roles in a course, the highest."""
    fits, administrator, courses = False, False, dict[str, str]()
    for rule in rules:
        for told in _values(claims, rule.claim):
            course = rule.course_of(told)
            if course is None:
                continue
            fits, administrator = True, administrator or rule.administrator
            if course:
                courses[course] = max(courses.get(course, rule.role), rule.role, key=RANKS.index)
    return Grants(fits, administrator, courses)


def _email(claims: Mapping[str, Any]) -> tuple[str, bool]:
    """An address, and whether the same answer says that it was verified."""
    found = text_of(claims.get(EMAIL))
    return found, claims.get("email_verified") in (True, "true")


def _sign_in_name(provider: Provider, claims: Mapping[str, Any]) -> str:
    """The sign-in name here that the provider vouches for; empty where it says none."""
    claim = provider.sign_in_name_claim
    told = _values(claims, claim) if claim else ()
    if not told:
        return ""
    name = told[0]
    if len(told) > 1 or not 0 < len(name) <= 200 or not name.isprintable() or name != name.strip():
        raise SignOnRefused(BAD_SIGN_IN_NAME(claim=claim))
    return name


def _values(claims: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """The texts of a claim; `realm_access.roles` is one in another, unless a claim has that name itself."""
    value: Any = claims
    if name in claims:
        value = claims[name]
    else:
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    listed = value if isinstance(value, list) else [value]
    return tuple(text for one in listed[:MOST_VALUES] if (text := _text(one)) is not None)


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else None
