"""Groups of students for an assignment: invitations, arrangement by staff or by file."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import ScalarSelect, delete, func, select
from sqlalchemy.orm import Session

from grading.domain.base_value import Value
from grading.domain.errors import CannotUndo, Conflict, NotFound
from grading.domain.messages import define_message
from grading.domain.shared_messages import NOT_A_STUDENT
from grading.store import tables
from grading.store.accounts import users
from grading.store.audit import UNDO, done_at, write_audit
from grading.store.tables import Assignment, GroupMember, Membership, User, new_id
from grading.tabular.roster_csv import GroupProblem

NO_SUCH_CLASSMATE = define_message(
    "groups.no_such_classmate",
    "No other student of this course signs in with that name. Ask them how they sign in.",
)
ALREADY_IN_GROUP = define_message(
    "groups.already_in_group",
    "%(name)s is already in a group or was invited to one. They must leave it first.",
)
INVITED_YOURSELF = define_message(
    "groups.invited_yourself", "You have an invitation to a group. Accept or decline it first."
)
GROUP_FULL = define_message("groups.group_full", "A group has at most %(most)s people, and yours is full.")
GROUP_HAS_SUBMITTED = define_message(
    "groups.group_has_submitted", "Your group has already submitted. Ask your instructor to change the group."
)
CHANGED_MEANWHILE = define_message(
    "groups.changed_meanwhile", "Someone changed this group at the same time. Try again."
)
INVITATION_GONE = define_message(
    "groups.invitation_gone", "This invitation no longer exists. Ask your classmate to invite you again."
)
GROUP_CHANGED = define_message(
    "groups.group_changed", "Someone changed this group at the same time. Reload the page."
)
GROUP_TOO_LARGE = define_message(
    "groups.group_too_large", "Group “%(group)s” has %(people)s people; at most %(most)s submit together."
)
DONE_ALONE = define_message("groups.done_alone", "This assignment has no groups. Set the group size first.")


class Person(Value):
    """A student as groups list them."""

    user_id: int
    name: str
    sign_in_name: str = ""
    confirmed: bool = True


class Group(Value):
    """Students who submit together; who has not confirmed yet is only invited."""

    id: str
    people: tuple[Person, ...]

    def of(self, user_id: int) -> Person | None:
        """The member with this id, or None."""
        return next((one for one in self.people if one.user_id == user_id), None)


def require_groups(assignment: Assignment) -> None:
    """Raise GroupProblem for an assignment without groups."""
    if assignment.group_size < 2:
        raise GroupProblem(DONE_ALONE)


def group_members(session: Session, assignment: Assignment, student_id: int) -> tuple[int, ...]:
    """Ids of all users that a submission of this student counts for, themselves included, sorted."""
    if assignment.group_size < 2:
        return (student_id,)
    return confirmed_members(session, assignment.id, student_id)


def confirmed_members(session: Session, assignment_id: int, student_id: int) -> tuple[int, ...]:
    """The confirmed members of a student's group, for assignments with groups."""
    mine = (
        select(GroupMember.group_id)
        .where(GroupMember.assignment_id == assignment_id, GroupMember.user_id == student_id)
        .where(GroupMember.confirmed)
    )
    others = select(GroupMember.user_id).where(
        GroupMember.assignment_id == assignment_id,
        GroupMember.group_id.in_(mine),
        GroupMember.confirmed,
    )
    return tuple(sorted({student_id, *session.scalars(others)}))


def group_of(session: Session, assignment_id: int, user_id: int) -> Group | None:
    """The group that a user is in or invited to, or None."""
    row = session.get(GroupMember, (assignment_id, user_id))
    return None if row is None else _groups(session, assignment_id, row.group_id).get(row.group_id)


def list_groups(session: Session, assignment_id: int) -> list[Group]:
    """All groups of an assignment, sorted by their first member's name."""
    found = _groups(session, assignment_id).values()
    return sorted(found, key=lambda group: (group.people[0].name.casefold(), group.id))


def list_unconfirmed(session: Session, assignment_id: int) -> frozenset[int]:
    """Invited students who have not answered."""
    query = select(GroupMember.user_id).where(
        GroupMember.assignment_id == assignment_id, GroupMember.confirmed.is_(False)
    )
    return frozenset(session.scalars(query))


def groups_digest(session: Session, assignment_id: int) -> str:
    """A digest of all memberships, by which a form detects changes."""
    known = _memberships(session, assignment_id)
    return hashlib.sha256(repr(known).encode()).hexdigest()[:16]


def _memberships(session: Session, assignment_id: int) -> list[tuple[int, str, bool]]:
    return sorted(
        (row.user_id, row.group_id, row.confirmed) for row in list_memberships(session, assignment_id)
    )


def _groups(session: Session, assignment_id: int, group_id: str | None = None) -> dict[str, Group]:
    name = _sign_in_name()
    query = (
        select(GroupMember.group_id, GroupMember.confirmed, User.id, User.name, name)
        .join(User, User.id == GroupMember.user_id)
        .where(GroupMember.assignment_id == assignment_id)
        .order_by(func.lower(User.name), User.id)
    )
    if group_id is not None:
        query = query.where(GroupMember.group_id == group_id)
    people: dict[str, list[Person]] = {}
    for group, confirmed, user_id, user_name, sign_in in session.execute(query):
        one = Person(user_id=user_id, name=user_name, sign_in_name=sign_in or "", confirmed=confirmed)
        people.setdefault(group, []).append(one)
    return {group: Group(id=group, people=tuple(members)) for group, members in people.items()}


def _sign_in_name() -> ScalarSelect[str]:
    identity = tables.Identity
    found = select(identity.subject).where(identity.user_id == User.id, identity.provider == "local")
    return found.order_by(identity.id).limit(1).scalar_subquery()


def list_students(session: Session, course_id: int) -> list[Person]:
    """The students of a course, by name."""
    query = (
        select(User.id, User.name, _sign_in_name())
        .join(Membership, Membership.user_id == User.id)
        .where(Membership.course_id == course_id, Membership.role == "student")
        .order_by(func.lower(User.name), User.id)
    )
    return [
        Person(user_id=user_id, name=name, sign_in_name=sign_in or "")
        for user_id, name, sign_in in session.execute(query)
    ]


def invite(session: Session, assignment: Assignment, by: int, sign_in_name: str) -> Person:
    """Invite a classmate into one's own group, which is created if needed. Raises GroupProblem."""
    invited = _classmate(session, assignment, sign_in_name.strip())
    if invited is None or invited.id == by:
        raise GroupProblem(NO_SUCH_CLASSMATE)
    mine = _locked_with_group(session, assignment.id, by, invited.id)
    if session.get(GroupMember, (assignment.id, invited.id), populate_existing=True) is not None:
        raise GroupProblem(ALREADY_IN_GROUP(name=invited.name))
    if mine is not None and not mine.confirmed:
        raise GroupProblem(INVITED_YOURSELF)
    if mine is None:
        mine = add_member(session, assignment.id, by, new_id(), confirmed=True)
    if len(_ids(session, assignment.id, mine.group_id)) >= assignment.group_size:
        raise GroupProblem(GROUP_FULL(most=assignment.group_size))
    if has_submitted(session, assignment.id, mine.group_id):
        raise GroupProblem(GROUP_HAS_SUBMITTED)
    add_member(session, assignment.id, invited.id, mine.group_id, confirmed=False)
    audit_group(session, f"user:{by}", "group.invite", assignment.id, {"user": invited.id})
    return Person(user_id=invited.id, name=invited.name, sign_in_name=sign_in_name, confirmed=False)


def _locked_with_group(session: Session, assignment_id: int, *user_ids: int) -> GroupMember | None:
    """Lock these users and the members of the first one's group; returns the first one's membership.

    One statement locks all in order, or two members who do this at once would deadlock. Raises GroupProblem
    when the group changed meanwhile.
    """
    before = session.get(GroupMember, (assignment_id, user_ids[0]))
    people = {*user_ids, *(_ids(session, assignment_id, before.group_id) if before else ())}
    lock_users(session, people)
    row = session.get(GroupMember, (assignment_id, user_ids[0]), populate_existing=True)
    if row is not None and not set(_ids(session, assignment_id, row.group_id)) <= people:
        raise GroupProblem(CHANGED_MEANWHILE)
    return row


def confirm_invitation(session: Session, assignment: Assignment, user_id: int) -> None:
    """Accept an invitation. Raises NotFound when it has been withdrawn."""
    row = _locked_with_group(session, assignment.id, user_id)
    if row is None:
        raise NotFound(INVITATION_GONE)
    if not row.confirmed:
        row.confirmed = True
        audit_group(session, f"user:{user_id}", "group.confirm", assignment.id, {"group": row.group_id})


def leave_group(session: Session, assignment: Assignment, user_id: int) -> None:
    """Leave a group, or decline an invitation. Raises GroupProblem once the group has submitted."""
    row = _locked_with_group(session, assignment.id, user_id)
    if row is None:
        return
    if row.confirmed and has_submitted(session, assignment.id, row.group_id):
        raise GroupProblem(GROUP_HAS_SUBMITTED)
    session.delete(row)
    session.flush()
    dissolve_if_empty(session, assignment.id, row.group_id)
    audit_group(session, f"user:{user_id}", "group.leave", assignment.id, {"group": row.group_id})


def has_submitted(session: Session, assignment_id: int, group_id: str) -> bool:
    """Whether members of a group have submitted together."""
    people = _ids(session, assignment_id, group_id)
    member, own = tables.SubmissionMember, tables.Submission
    query = (
        select(own.id)
        .join(member, member.submission_id == own.id)
        .where(own.assignment_id == assignment_id, own.student_id.in_(people), member.user_id.in_(people))
    )
    return session.execute(query.limit(1)).first() is not None


def _classmate(session: Session, assignment: Assignment, sign_in_name: str) -> User | None:
    found = users.find_user(session, "local", sign_in_name)
    if found is None or found.disabled:
        return None
    row = session.get(Membership, (found.id, assignment.course_id))
    return found if row is not None and row.role == "student" else None


def lock_users(session: Session, user_ids: Iterable[int]) -> None:
    """Lock these users until the transaction ends."""
    ids = sorted(set(user_ids))
    session.execute(select(User.id).where(User.id.in_(ids)).order_by(User.id).with_for_update())


def list_memberships(session: Session, assignment_id: int) -> list[GroupMember]:
    """All memberships of an assignment's groups."""
    return list(session.scalars(select(GroupMember).where(GroupMember.assignment_id == assignment_id)))


def _ids(session: Session, assignment_id: int, group_id: str) -> list[int]:
    query = select(GroupMember.user_id).where(
        GroupMember.assignment_id == assignment_id, GroupMember.group_id == group_id
    )
    return list(session.scalars(query))


def add_member(
    session: Session, assignment_id: int, user_id: int, group_id: str, *, confirmed: bool
) -> GroupMember:
    """Add a user to a group. Raises Conflict when another transaction does at the same time."""
    if session.get(GroupMember, (assignment_id, user_id)) is not None:
        raise Conflict(GROUP_CHANGED)
    row = GroupMember(assignment_id=assignment_id, user_id=user_id, group_id=group_id, confirmed=confirmed)
    session.add(row)
    session.flush()
    return row


def dissolve_if_empty(session: Session, assignment_id: int, group_id: str | None = None) -> None:
    """Delete a group without confirmed members, or with a single member."""
    for group in _groups(session, assignment_id, group_id).values():
        if len(group.people) < 2 or not any(one.confirmed for one in group.people):
            session.execute(
                delete(GroupMember).where(
                    GroupMember.assignment_id == assignment_id, GroupMember.group_id == group.id
                )
            )


def audit_group(
    session: Session, actor: str, action: str, assignment_id: int, detail: dict[str, object]
) -> None:
    """Add an audit row about a group."""
    write_audit(session, actor, action, f"assignment:{assignment_id}", detail)


def arrange_groups(
    session: Session, assignment: Assignment, wanted: Mapping[int, str], actor: str
) -> tuple[int, int]:
    """Put students into groups by label: user -> label, empty for no group.

    Students who are not named stay in their groups. A label stands for a new group of exactly these; where
    the same people are a group already, nothing changes. Earlier submissions keep their owners. Returns the
    number of groups and of students who changed. Raises GroupProblem.
    """
    known = {one.user_id: one for one in list_students(session, assignment.course_id)}
    if set(wanted) - set(known):
        raise GroupProblem(NOT_A_STUDENT)
    lock_users(session, wanted)
    before = {row.user_id: row for row in list_memberships(session, assignment.id)}
    were = _memberships(session, assignment.id)
    target = dict.fromkeys(wanted, "")
    for people in _by_label(wanted, assignment.group_size):
        group_id = _same(before, people) or new_id()
        target.update(dict.fromkeys(people, group_id))
    changed = 0
    for user_id, group_id in sorted(target.items()):
        changed += _move(session, assignment.id, user_id, before.get(user_id), group_id)
    session.flush()
    dissolve_if_empty(session, assignment.id)
    if changed:
        session.flush()
        moved = set(were).symmetric_difference(_memberships(session, assignment.id))
        touched = sorted({user_id for user_id, _group, _confirmed in moved})
        undo: dict[str, object] = {"people": touched, "state": groups_digest(session, assignment.id)}
        undo["were"] = [one for one in were if one[0] in touched]
        audit_group(session, actor, "group.arrange", assignment.id, {"changed": changed, UNDO: undo})
    return len({row.group_id for row in list_memberships(session, assignment.id)}), changed


def _by_label(wanted: Mapping[int, str], most: int) -> Iterable[list[int]]:
    """The students of each label. Raises GroupProblem where they are too many."""
    by_label: dict[str, list[int]] = {}
    for user_id, label in wanted.items():
        if label:
            by_label.setdefault(label, []).append(user_id)
    for label, people in by_label.items():
        if len(people) > most:
            raise GroupProblem(GROUP_TOO_LARGE(group=label[:40], people=len(people), most=most))
    return by_label.values()


def undo_arrangement(session: Session, assignment: Assignment, moment: datetime, actor: str) -> int:
    """Undo the arrangement that the actor made at this moment; returns how many students it moves back.

    Raises CannotUndo when a group changed since.
    """
    rows = done_at(session, actor, moment, "group.arrange")
    row = next((one for one in rows if one.object == f"assignment:{assignment.id}"), None)
    undo = row.detail.get(UNDO) if row is not None else None
    if not undo:
        raise CannotUndo
    lock_users(session, undo["people"])
    if groups_digest(session, assignment.id) != undo["state"]:
        raise CannotUndo
    mine = (GroupMember.assignment_id == assignment.id, GroupMember.user_id.in_(undo["people"]))
    session.execute(delete(GroupMember).where(*mine))
    for user_id, group_id, confirmed in undo["were"]:
        add_member(session, assignment.id, user_id, group_id, confirmed=confirmed)
    audit_group(session, actor, "group.arrange", assignment.id, {"changed": len(undo["people"])})
    return len(undo["people"])


def arrange_at_random(
    session: Session, assignment: Assignment, actor: str, chance: random.Random | None = None
) -> tuple[int, int]:
    """Put all students without a group into random new ones. Returns the same as `arrange_groups`."""
    taken = {row.user_id for row in list_memberships(session, assignment.id)}
    free = [one.user_id for one in list_students(session, assignment.course_id) if one.user_id not in taken]
    (chance or random.SystemRandom()).shuffle(free)
    size = max(1, assignment.group_size)
    wanted = {user_id: f"new {place // size}" for place, user_id in enumerate(free)}
    return arrange_groups(session, assignment, wanted, actor)


def _same(before: Mapping[int, GroupMember], people: Sequence[int]) -> str | None:
    """The group that consists of exactly these people, or None."""
    first = before.get(people[0])
    if first is None:
        return None
    there = {user_id for user_id, row in before.items() if row.group_id == first.group_id}
    return first.group_id if there == set(people) else None


def _move(session: Session, assignment_id: int, user_id: int, row: GroupMember | None, group_id: str) -> bool:
    if row is None:
        if group_id:
            add_member(session, assignment_id, user_id, group_id, confirmed=True)
        return bool(group_id)
    if not group_id:
        session.delete(row)
        return True
    changed = row.group_id != group_id or not row.confirmed
    row.group_id, row.confirmed = group_id, True
    return changed
