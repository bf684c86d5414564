"""How people sign in: `[sign_on]` of config.toml, with the providers of single sign-on and their rules."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from grading.config.machines import Name
from grading.domain.base_value import Value

COURSE = "{course}"
"""Stands in a rule's value and course for the short name of a course."""
ANYTHING = "*"
SLUG = r"[a-z0-9][a-z0-9-]{0,63}"
Line = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$", min_length=1, max_length=255)]


class Rule(Value):
    """Who has this claim may have an account, and gets what the rule says."""

    claim: Line
    """The name of a claim, such as `groups`; of one in another, such as `realm_access.roles`."""
    value: Line
    """What the claim, or one of its list, must be; `*` is anything, `{course}` a course's short name."""
    course: Annotated[str, StringConstraints(pattern=rf"^({SLUG}|\{{course\}})?$")] = ""
    """The short name of a course that they are in; `{course}` is the one in `value`."""
    role: Literal["student", "grader", "instructor"] = "student"
    """Their role in the course."""
    administrator: bool = False
    """They are administrators."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.administrator and self.course:
            raise ValueError("a rule gives a course or makes administrators, not both; write two rules")
        if self.administrator and self.value == ANYTHING:
            raise ValueError('"*" would make everybody an administrator; name a value')
        if self.value.count(COURSE) > 1:
            raise ValueError("write {course} once")
        if (COURSE in self.value) != (self.course == COURSE):
            raise ValueError("{course} must be in value and in course, or in neither")
        if "role" in self.model_fields_set and not self.course:
            raise ValueError("a role needs the course it is for")
        return self

    def course_of(self, told: str) -> str | None:
        """The course that this value of the claim gives, empty for none; None where the rule does not fit."""
        if self.value == ANYTHING:
            return self.course if told else None
        before, mark, after = self.value.partition(COURSE)
        if not mark:
            return self.course if told == self.value else None
        found = re.fullmatch(f"{re.escape(before)}({SLUG}){re.escape(after)}", told)
        return found[1] if found else None


class Provider(Value):
    """A provider of OpenID Connect. Its secret comes from GRADER_SIGN_ON_<NAME>_SECRET."""

    title: Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=60)]
    """The text of its button on the page Sign in: who runs it, such as `University of Example`."""
    issuer: Annotated[str, StringConstraints(pattern=r"^https?://[!-~]+$", max_length=500)]
    """As the provider writes it, letter for letter; its discovery document lies below it."""
    client_id: Line
    """The name under which Grader is registered there."""
    scopes: tuple[Annotated[str, StringConstraints(pattern=r"^[!#-\[\]-~]+$")], ...] = (
        "openid", "profile", "email",
    )  # fmt: skip
    """What Grader asks the provider for; `openid` is always among it."""
    sign_in_name_claim: str = Field(default="", max_length=255)
    """A claim that is the sign-in name of an account here, such as a student ID: who signs in for the first
    time gets this account. Only for a claim that nobody can choose for themselves. Never an
    administrator's account."""
    rules: tuple[Rule, ...] = ()
    """Who gets what; without a rule that fits, only people whose account is linked get in."""

    @field_validator("issuer")
    @classmethod
    def _plain(cls, issuer: str) -> str:
        if "?" in issuer or "#" in issuer or "@" in issuer:
            raise ValueError("an issuer has no user, query or fragment")
        return issuer

    @field_validator("scopes")
    @classmethod
    def _openid(cls, scopes: tuple[str, ...]) -> tuple[str, ...]:
        return scopes if "openid" in scopes else ("openid", *scopes)


class SignOn(Value):
    """How people sign in: with a password of Grader, or through the school's providers."""

    local_accounts: bool = True
    """Whether passwords of Grader work; with false, only those of break-glass accounts do."""
    providers: dict[Name, Provider] = Field(default_factory=dict)
    """A table each, `[sign_on.providers.NAME]`; the name is part of the addresses that the provider knows."""

    @field_validator("providers")
    @classmethod
    def _one_each(cls, providers: dict[str, Provider]) -> dict[str, Provider]:
        issuers = [one.issuer for one in providers.values()]
        if len(set(issuers)) < len(issuers):
            raise ValueError("two providers have the same issuer; people are known by it, so write one table")
        return providers

    @model_validator(mode="after")
    def _somebody_gets_in(self) -> SignOn:
        if not self.local_accounts and not self.providers:
            raise ValueError(
                "local_accounts: without a provider, false would keep everybody out; add a table "
                "[sign_on.providers.NAME], or leave local_accounts true"
            )
        return self
