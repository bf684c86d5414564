"""The people of a course: list, show, add, other roles, take out."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from app.api.fields import STORABLE, Line, RequestModel
from app.api.guards import of_course, of_member
from app.api.paging import Page, Paged, cut, number
from app.api.routes import Call, delete, get, patch, post
from app.web.parsing import InvalidField
from grading.domain.errors import AT_PLACE
from grading.domain.messages import define_message
from grading.store import tables
from grading.store.courses import roster
from grading.store.courses.roster import Person
from grading.store.views import api_lists
from grading.tabular import roster_csv
from grading.tabular.roster_csv import Problem, Roster

Role = Literal["student", "grader", "instructor"]
MOST = 1000
"""People that are added at once."""
MEMBER = "/courses/<int:course_id>/members"
ONE = f"{MEMBER}/<int:user_id>"


class MemberFilter(Paged):
    """Filters of the list."""

    role: Role | None = Field(default=None, description="only people with this role")
    search: Line | None = Field(default=None, description="part of a name, an email address or an ID")


class Member(BaseModel):
    """A person in a course."""

    user_id: int = Field(description="the ID of the account", examples=[17])
    id: str = Field(description="the sign-in name (student ID)", examples=["ada"])
    name: str = Field(description="the name", examples=["Ada Lovelace"])
    email: str = Field(description="the email address; empty if unknown", examples=["ada@school.example"])
    role: str = Field(description="`student`, `grader` or `instructor`", examples=["student"])
    disabled: bool = Field(description="whether the account is disabled", examples=[False])
    enters: bool = Field(description="whether the person has set a password")


class NewMember(RequestModel):
    """A person to add, or to change if already in the course."""

    id: Annotated[str, Field(min_length=1, max_length=200, pattern=STORABLE)] = Field(
        description="the sign-in name (student ID)", examples=["ada"]
    )
    name: Annotated[str, Field(max_length=200, pattern=STORABLE)] = Field(
        default="", description="the name; empty: unchanged", examples=["Ada Lovelace"]
    )
    email: Annotated[str, Field(max_length=200, pattern=STORABLE)] = Field(
        default="", description="the email address; empty: unchanged", examples=["ada@school.example"]
    )
    role: Role | None = Field(default=None, description="the role; default: `student`, or the existing role")


class NewMembers(RequestModel):
    """People to add. If one of them has an error, nobody is added."""

    members: Annotated[list[NewMember], Field(min_length=1, max_length=MOST)] = Field(
        description="the people"
    )


class MembersAdded(BaseModel):
    """The numbers of added and changed people."""

    made: int = Field(description="the number of new accounts", examples=[1])
    joined: int = Field(description="existing accounts that were added to the course", examples=[0])
    changed: int = Field(description="members whose name, email address or role changed", examples=[0])
    unchanged: int = Field(description="unchanged members", examples=[0])


class RoleChange(RequestModel):
    """The new role."""

    role: Role = Field(description="the new role")


@get(MEMBER, of_course("roster.see"))
def members_of_course(call: Call, about: tables.Course, query: MemberFilter) -> Page[Member]:
    """List the people of a course (staff only)."""
    rows = call.session, about.id, query.role, query.search or "", number(query) or 0, query.limit + 1
    items, address = cut(call, query, api_lists.list_members(*rows), lambda one: (one.user_id,))
    return Page(items=[_to_member(one) for one in items], next=address)


@post(MEMBER, of_course("roster.change"))
def add_members(call: Call, about: tables.Course, body: NewMembers) -> MembersAdded:
    """Add people or change their data, like a roster import."""
    done = roster.apply_import(call.session, about.id, _table(body), call.actor)
    if done.problems:
        raise _refused(done.problems)
    return MembersAdded(**{word: len(done.of(kind)) for kind, word in roster.RESULT_NAMES.items()})


@get(ONE, of_member("roster.see"))
def member(call: Call, about: tables.Course, user_id: int) -> Member:
    """Get a person in a course (staff only)."""
    return _member(call, about, user_id)


@patch(ONE, of_member("roster.change"))
def change_member(call: Call, about: tables.Course, user_id: int, body: RoleChange) -> Member:
    """Change the role of a person. You cannot change your own role."""
    roster.set_role(call.session, about.id, user_id, body.role, call.actor)
    return _member(call, about, user_id)


@delete(ONE, of_member("roster.change"))
def remove_member(call: Call, about: tables.Course, user_id: int) -> None:
    """Remove a person from a course and its groups. Their submissions and grades are kept."""
    roster.remove_member(call.session, about.id, user_id, call.actor)


def _member(call: Call, about: tables.Course, user_id: int) -> Member:
    found = roster.load_membership(call.session, about.id, user_id)
    return _to_member(roster.load_person(call.session, user_id, found.role))


def _to_member(one: Person) -> Member:
    return Member(
        user_id=one.user_id,
        id=one.ids[0] if one.ids else "",
        name=one.name,
        email=one.email,
        role=one.role,
        disabled=one.disabled,
        enters=one.enters,
    )


def _table(body: NewMembers) -> Roster:
    """The same as a table that was read. Raises InvalidField."""
    rows, ids = [], set()
    for place, one in enumerate(body.members, 1):
        read = roster_csv.single_person(one.id, one.name, one.email, one.role or "")
        if read.problems:
            raise _refused((Problem(place, read.problems[0].said),))
        (row,) = read.rows
        if row.id in ids:
            raise _refused((Problem(place, SAME_ID_TWICE()),))
        ids.add(row.id)
        rows.append(roster_csv.Row(place, row.id, row.name, row.email, row.role))
    return Roster(tuple(rows))


SAME_ID_TWICE = define_message("rosters_api.same_id_twice", "The same ID appears twice.")


class MemberRefused(InvalidField):
    """Nobody was added, because one of the people cannot be added."""

    code = "member_refused"
    default_message = define_message(
        "error.member_refused", "Nobody was added, because one of the people cannot be added."
    )


def _refused(problems: tuple[Problem, ...]) -> MemberRefused:
    first = problems[0]
    return MemberRefused(AT_PLACE(place=f"members.{first.line - 1}", problem=first.said))
