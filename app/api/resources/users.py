"""The accounts of all people: list, show, create, change, disable, and links that set a password."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from flask import url_for
from pydantic import BaseModel, Field

from app.api.fields import PRINTABLE, ChangeModel, Line, RequestModel, Yes
from app.api.guards import allowed
from app.api.paging import Page, Paged, cut, number
from app.api.routes import Call, get, patch, post
from app.web import auth
from grading.domain.errors import Forbidden
from grading.domain.messages import define_message
from grading.store.courses import invitations, user_admin
from grading.store.courses.roster import Person

ACCOUNT_DISABLED = define_message("users_api.account_disabled", "This account is disabled. Enable it first.")
ONE = "/users/<int:user_id>"
Email = Annotated[str, Field(max_length=200)]


class UserFilter(Paged):
    """Filters of the list."""

    search: Line | None = Field(default=None, description="part of a name, an email address or an ID")
    kind: Literal["administrators", "staff", "disabled", "invited"] | None = Field(
        default=None, description="the state; `invited` accounts have no password yet"
    )


class User(BaseModel):
    """A person with an account."""

    user_id: int = Field(description="the ID of the account", examples=[17])
    ids: list[str] = Field(
        description="the sign-in name and the IDs at learning platforms", examples=[["ada"]]
    )
    name: str = Field(description="the name", examples=["Ada Lovelace"])
    email: str = Field(
        description="the email address; empty if there is none", examples=["ada@school.example"]
    )
    administrator: bool = Field(description="whether the person is an administrator", examples=[False])
    disabled: bool = Field(
        description="whether the account is disabled; its tokens are revoked", examples=[False]
    )
    enters: bool = Field(description="whether the person has set a password")


class CourseOfUser(BaseModel):
    """A course of a person."""

    course_id: int = Field(description="the ID of the course", examples=[3])
    title: str = Field(description="the title of the course", examples=["Business Analytics"])
    role: str = Field(description="`student`, `grader` or `instructor`", examples=["student"])


class Identity(BaseModel):
    """A sign-in identity."""

    provider: str = Field(
        description="`local` for the sign-in name, else a learning platform", examples=["local"]
    )
    subject: str = Field(description="the ID there", examples=["ada"])


class UserDetails(User):
    """A person with their courses."""

    created_at: datetime = Field(description="when the account was created")
    courses: list[CourseOfUser] = Field(description="the courses, with the role in each")
    identities: list[Identity] = Field(description="the sign-in identities")


class NewUser(RequestModel):
    """A new account, without a password."""

    sign_in_name: Line = Field(description="the sign-in name; it must be unique", examples=["ada"])
    name: Annotated[str, Field(max_length=200)] = Field(
        default="", description="the name; empty: the sign-in name", examples=["Ada Lovelace"]
    )
    email: Email = Field(
        default="", description="the email address; empty if there is none", examples=["ada@school.example"]
    )
    administrator: bool = Field(default=False, description="whether the person is an administrator")


class UserMade(BaseModel):
    """A new account."""

    user_id: int = Field(description="the ID of the account", examples=[17])
    url: str = Field(description="the URL of the new object", examples=["/api/v1/users/17"])


class UserChange(ChangeModel):
    """Changes of an account. You cannot change `administrator` or `disabled` of your own account."""

    name: Annotated[str, Field(min_length=1, max_length=200, pattern=PRINTABLE)] = Field(
        default="", description="the name", examples=["Ada Lovelace"]
    )
    email: Email = Field(default="", description="the email address; empty if there is none")
    administrator: Yes = Field(default=False, description="whether the person is an administrator")
    disabled: Yes = Field(
        default=False, description="whether to disable the account; true ends sessions and revokes tokens"
    )


class PasswordLink(BaseModel):
    """A link to set a password; it works once and expires after 7 days."""

    user_id: int = Field(description="the ID of the account", examples=[17])
    link: str | None = Field(
        description="`null` if this request was answered before with the same Idempotency-Key",
        examples=["https://grader.school.example/reset/4f0c"],
    )


@get("/users", allowed("administer"))
def users(call: Call, query: UserFilter) -> Page[User]:
    """List accounts (administrators only)."""
    wanted = query.search or "", query.kind or ""
    found = user_admin.list_users_after(call.session, *wanted, number(query) or 0, query.limit + 1)
    items, address = cut(call, query, found, lambda one: (one.user_id,))
    return Page(items=[User(**_fields(one)) for one in items], next=address)


@post("/users", allowed("administer"), status=201)
def create_user(call: Call, body: NewUser) -> UserMade:
    """Create an account. Its owner signs in with a password link (administrators only)."""
    made = user_admin.create_account(call.session, **body.model_dump(), actor=call.actor)
    url = call.headers["Location"] = url_for("api.user", user_id=made)
    return UserMade(user_id=made, url=url)


@get(ONE, allowed("administer"))
def user(call: Call, user_id: int) -> UserDetails:
    """Get an account with its courses (administrators only)."""
    return _details(call, user_id)


@patch(ONE, allowed("administer"))
def change_user(call: Call, user_id: int, body: UserChange) -> UserDetails:
    """Change the name, email address or administrator role, or disable the account (administrators only)."""
    person = user_admin.load_account(call.session, user_id).person
    wanted = {"name": person.name, "email": person.email, **body.model_dump(exclude_unset=True)}
    user_admin.rename_user(call.session, user_id, wanted["name"], wanted["email"], call.actor)
    if "administrator" in wanted:
        user_admin.set_flag(call.session, user_id, "administrator", wanted["administrator"], call.actor)
    if "disabled" in wanted:
        user_admin.set_flag(call.session, user_id, "disabled", wanted["disabled"], call.actor)
    return _details(call, user_id)


@post(f"{ONE}/password-link", allowed("administer"), said_once=("link",))
def create_password_link(call: Call, user_id: int) -> PasswordLink:
    """Create a link to set a password; earlier links no longer work (administrators only)."""
    if user_admin.load_account(call.session, user_id).person.disabled:
        raise Forbidden(ACCOUNT_DISABLED)
    auth.require_passwords(call.session, [user_id])
    made = invitations.create_links(call.session, [user_id], call.actor.name, call.actor.user_id)
    return PasswordLink(user_id=user_id, link=auth.password_link(made[user_id]))


def _details(call: Call, user_id: int) -> UserDetails:
    account = user_admin.load_account(call.session, user_id)
    return UserDetails(
        **_fields(account.person),
        created_at=account.created_at,
        courses=[CourseOfUser(**vars(one)) for one in account.places],
        identities=[Identity(provider=provider, subject=subject) for provider, subject in account.providers],
    )


def _fields(one: Person) -> dict[str, Any]:
    return {name: getattr(one, name) for name in User.model_fields}
