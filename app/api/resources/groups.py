"""Groups of an assignment: students who submit together."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from app.api import etags
from app.api.fields import PRINTABLE, RequestModel, Whole
from app.api.guards import of_assignment
from app.api.routes import Call, get, patch, post
from grading.store import tables
from grading.store.courses import groups as groups_store

ALL = "/assignments/<int:assignment_id>/groups"
MOST = 2000


class GroupMember(BaseModel):
    """A student in a group."""

    user_id: int = Field(description="the ID of the account", examples=[17])
    id: str = Field(description="the sign-in name", examples=["ada"])
    name: str = Field(description="the name", examples=["Ada Lovelace"])
    confirmed: bool = Field(description="false while the student is only invited")


class Group(BaseModel):
    """Students who submit together."""

    id: str = Field(
        description="the ID of the group; it changes when its members change", examples=["4f0c51de"]
    )
    members: list[GroupMember] = Field(description="the members, by name")


class Groups(BaseModel):
    """All groups of an assignment."""

    size: int = Field(description="the maximum size of a group; 1 if everybody works alone", examples=[2])
    items: list[Group] = Field(description="the groups")


class Placement(RequestModel):
    """The group of a student."""

    user_id: Whole = Field(description="the ID of the student's account", examples=[17])
    group: Annotated[str, Field(max_length=100, pattern=f"^$|{PRINTABLE}")] = Field(
        description="the group's name, the same for all its members; empty for no group", examples=["a"]
    )


class GroupsChange(RequestModel):
    """Students and their groups. Students who are not listed do not change."""

    members: Annotated[list[Placement], Field(min_length=1, max_length=MOST)] = Field(
        description="the students with their groups"
    )


class GroupsFilled(BaseModel):
    """The new groups."""

    groups: int = Field(description="the number of groups", examples=[12])
    moved: int = Field(description="the number of students who were assigned to a group", examples=[5])


@get(ALL, of_assignment("group.see"))
def groups(call: Call, about: tables.Assignment) -> Groups:
    """List the groups of an assignment (staff only). Send its ETag to change them."""
    return _groups(call, about)


@patch(ALL, of_assignment("group.manage"), matches=True)
def change_groups(call: Call, about: tables.Assignment, body: GroupsChange) -> Groups:
    """Assign students to groups, or to none. Existing submissions do not change."""
    groups_store.require_groups(about)
    etags.require_seen(groups_store.groups_digest(call.session, about.id))
    wanted = {one.user_id: one.group.strip() for one in body.members}
    groups_store.arrange_groups(call.session, about, wanted, call.actor.name)
    return _groups(call, about)


@post(f"{ALL}/fill", of_assignment("group.manage"))
def fill_groups(call: Call, about: tables.Assignment) -> GroupsFilled:
    """Assign all students without a group to random groups."""
    groups_store.require_groups(about)
    there, moved = groups_store.arrange_at_random(call.session, about, call.actor.name)
    return GroupsFilled(groups=there, moved=moved)


def _groups(call: Call, about: tables.Assignment) -> Groups:
    call.etag = groups_store.groups_digest(call.session, about.id)
    found = groups_store.list_groups(call.session, about.id)
    items = [Group(id=one.id, members=[_member(person) for person in one.people]) for one in found]
    return Groups(size=about.group_size, items=items)


def _member(one: groups_store.Person) -> GroupMember:
    return GroupMember(user_id=one.user_id, id=one.sign_in_name, name=one.name, confirmed=one.confirmed)
