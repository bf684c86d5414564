"""Groups as staff make them: typed, from a file, or by chance."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from grading.store.courses import groups
from grading.store.tables import Assignment, GroupMember, new_id
from grading.tabular.groups_csv import GroupProblem


def arrange(
    session: Session, assignment: Assignment, wanted: Mapping[int, str], actor: str
) -> tuple[int, int]:
    """Put students into groups by label, as staff say: user -> label, an empty one for no group.

    Those who are not named stay where they are. A label stands for a new group of exactly these; where the
    same people are together already, nothing changes. Hand-ins that are there stay whose they were. Returns
    how many groups there are and how many students changed. Raises GroupProblem.
    """
    known = {one.user_id: one for one in groups.students(session, assignment.course_id)}
    if set(wanted) - set(known):
        raise GroupProblem("One of these is not a student of this course; load the page again.")
    groups.lock(session, wanted)
    before = {row.user_id: row for row in groups.rows(session, assignment.id)}
    by_label: dict[str, list[int]] = {}
    for user_id, label in wanted.items():
        if label:
            by_label.setdefault(label, []).append(user_id)
    for label, people in by_label.items():
        if len(people) > assignment.group_size:
            raise GroupProblem(
                f"Group “{label[:40]}” has {len(people)} people; "
                f"at most {assignment.group_size} hand in together."
            )
    target = dict.fromkeys(wanted, "")
    for people in by_label.values():
        group_id = _same(before, people) or new_id()
        target.update(dict.fromkeys(people, group_id))
    changed = 0
    for user_id, group_id in sorted(target.items()):
        changed += _move(session, assignment.id, user_id, before.get(user_id), group_id)
    session.flush()
    groups.tidy(session, assignment.id)
    if changed:
        groups.noted(session, actor, "group.arrange", assignment.id, {"changed": changed})
    return len({row.group_id for row in groups.rows(session, assignment.id)}), changed


def fill(
    session: Session, assignment: Assignment, actor: str, chance: random.Random | None = None
) -> tuple[int, int]:
    """Put everybody who is in no group into new ones by chance. Returns what `arrange` does."""
    taken = {row.user_id for row in groups.rows(session, assignment.id)}
    free = [one.user_id for one in groups.students(session, assignment.course_id) if one.user_id not in taken]
    (chance or random.SystemRandom()).shuffle(free)
    size = max(1, assignment.group_size)
    wanted = {user_id: f"new {place // size}" for place, user_id in enumerate(free)}
    return arrange(session, assignment, wanted, actor)


def _same(before: Mapping[int, GroupMember], people: Sequence[int]) -> str | None:
    """The group these people, and nobody else, are in already."""
    first = before.get(people[0])
    if first is None:
        return None
    there = {user_id for user_id, row in before.items() if row.group_id == first.group_id}
    return first.group_id if there == set(people) else None


def _move(session: Session, assignment_id: int, user_id: int, row: GroupMember | None, group_id: str) -> bool:
    if row is None:
        if group_id:
            groups.add(session, assignment_id, user_id, group_id, confirmed=True)
        return bool(group_id)
    if not group_id:
        session.delete(row)
        return True
    changed = row.group_id != group_id or not row.confirmed
    row.group_id, row.confirmed = group_id, True
    return changed
