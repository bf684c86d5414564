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
    """Which people a list shows."""

    role: Role | None = Field(default=None, description="only those with this role")
    search: Line | None = Field(default=None, description="part of a name, an address or an id")


class Member(BaseModel):
    """Somebody in a course."""

    user_id: int = Field(description="their number", examples=[17])
    id: str = Field(description="what they sign in as, their student id", examples=["ada"])
    name: str = Field(description="their name", examples=["Ada Lovelace"])
    email: str = Field(
        description="their address; empty where none is known", examples=["ada@school.example"]
    )
    role: str = Field(description="`student`, `grader` or `instructor`", examples=["student"])
    disabled: bool = Field(description="whether they may not sign in any more", examples=[False])
    enters: bool = Field(description="whether they have a password")


class NewMember(RequestModel):
    """Somebody to be added, or changed where they are there already."""

    id: Annotated[str, Field(min_length=1, max_length=200, pattern=STORABLE)] = Field(
        description="their student id", examples=["ada"]
    )
    name: Annotated[str, Field(max_length=200, pattern=STORABLE)] = Field(
        default="", description="their name; empty: as it is", examples=["Ada Lovelace"]
    )
    email: Annotated[str, Field(max_length=200, pattern=STORABLE)] = Field(
        default="", description="their address; empty: as it is", examples=["ada@school.example"]
    )
    role: Role | None = Field(default=None, description="student, unless they have one already")


class NewMembers(RequestModel):
    """People to be added; all of them, or nobody when something is wrong with one."""

    members: Annotated[list[NewMember], Field(min_length=1, max_length=MOST)] = Field(
        description="the people"
    )


class MembersAdded(BaseModel):
    """How many were what."""

    made: int = Field(description="accounts that are new", examples=[1])
    joined: int = Field(description="people who had an account and came into the course", examples=[0])
    changed: int = Field(description="members with another name, address or role now", examples=[0])
    unchanged: int = Field(description="members who are as they were", examples=[0])


class RoleChange(RequestModel):
    """Another role."""

    role: Role = Field(description="the new role")


@get(MEMBER, of_course("roster.see"))
def members_of_course(call: Call, about: tables.Course, query: MemberFilter) -> Page[Member]:
    """Everybody in a course; for its staff."""
    rows = call.session, about.id, query.role, query.search or "", number(query) or 0, query.limit + 1
    items, address = cut(call, query, api_lists.list_members(*rows), lambda one: (one.user_id,))
    return Page(items=[_to_member(one) for one in items], next=address)


@post(MEMBER, of_course("roster.change"))
def add_members(call: Call, about: tables.Course, body: NewMembers) -> MembersAdded:
    """Add people, or put right what is known of them, as the table of a roster does."""
    done = roster.apply_import(call.session, about.id, _table(body), call.actor)
    if done.problems:
        raise _refused(done.problems)
    return MembersAdded(**{word: len(done.of(kind)) for kind, word in roster.RESULT_NAMES.items()})


@get(ONE, of_member("roster.see"))
def member(call: Call, about: tables.Course, user_id: int) -> Member:
    """Somebody in a course; for its staff."""
    return _member(call, about, user_id)


@patch(ONE, of_member("roster.change"))
def change_member(call: Call, about: tables.Course, user_id: int, body: RoleChange) -> Member:
    """Give somebody another role. One's own is for others to change."""
    roster.set_role(call.session, about.id, user_id, body.role, call.actor)
    return _member(call, about, user_id)


@delete(ONE, of_member("roster.change"))
def remove_member(call: Call, about: tables.Course, user_id: int) -> None:
    """Take somebody out of a course and its groups. What they submitted, and its grades, stay."""
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
