"""Rosters and assignments that a learning platform sends, applied to our courses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.assignments.editor.folder import Content, Settings
from grading.assignments.editor.rubric_from_solution import template
from grading.domain.errors import NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import STAFF, Actor
from grading.integrations.events import Assigned, Member, Roster
from grading.store import tables
from grading.store.accounts import users
from grading.store.assignments import versions
from grading.store.assignments.settings import settings_of
from grading.store.audit import write_audit
from grading.store.courses import roster
from grading.store.database import now
from grading.store.grades import extensions

NO_COURSE_OF_SLUG = define_message(
    "lms_rosters.no_course_of_slug",
    "The course '%(slug)s' does not exist. Ask an administrator to create it.",
)

MOST_NAMED = 50
"""Ids that an answer names."""


@dataclass(frozen=True)
class Connection(Actor):
    """A learning platform as actor."""

    connection: str = ""

    @property
    def name(self) -> str:
        """Its name in the audit, which is also the provider of its users' identities."""
        return f"lms:{self.connection}"


def update_roster(session: Session, connection: str, message: Roster) -> dict[str, Any]:
    """Apply a roster; returns counts, and ids whose rows it did not change. Raises NotFound.

    A learning platform neither demotes nor removes staff; disabled accounts and administrators stay as they
    are, and so do names of users with other identities.
    """
    by, course = Connection(0, connection=connection), _course(session, message.course)
    counts = {"made": 0, "joined": 0, "changed": 0, "unchanged": 0, "removed": 0}
    kept: list[str] = []
    for member in {one.id.strip(): one for one in message.members}.values():
        counts[_put(session, by, course.id, member, kept)] += 1
    for subject in dict.fromkeys(message.removed):
        user = users.find_user(session, by.name, subject.strip())
        found = session.get(tables.Membership, (user.id, course.id)) if user is not None else None
        if user is None or found is None:
            continue
        if found.role in STAFF or user.administrator:
            kept.append(subject)
            continue
        roster.remove_member(session, course.id, user.id, by)
        counts["removed"] += 1
    if any(counts[word] for word in ("made", "joined", "changed")):
        shown = {word: counts[word] for word in ("made", "joined", "changed", "unchanged")}
        write_audit(session, by.name, "roster.import", f"course:{course.id}", shown)
    return {**counts, "kept": kept[:MOST_NAMED]}


def upsert_assignment(session: Session, connection: str, message: Assigned) -> dict[str, Any]:
    """Set an assignment's title and date, or create it. Raises NotFound.

    A new one is hidden, with a draft of a rubric that people edit and publish.
    """
    by, course = Connection(0, connection=connection), _course(session, message.course)
    dated = "due_at" in message.model_fields_set
    found = session.scalar(
        select(tables.Assignment).where(
            tables.Assignment.course_id == course.id, tables.Assignment.slug == message.slug
        )
    )
    if found is None:
        settings = Settings(title=message.title, slug=message.slug, due=message.due_at, visible=False)
        versions.create_assignment(session, course.id, settings, Content(rubric=template(())), by)
        return {"made": True, "changed": True}
    was = settings_of(found)
    wanted = was.model_copy(update={"title": message.title, **({"due": message.due_at} if dated else {})})
    if wanted != was:
        extensions.apply_settings(session, found, wanted, by)
    return {"made": False, "changed": wanted != was}


def _course(session: Session, slug: str) -> tables.Course:
    found = session.scalar(select(tables.Course).where(tables.Course.slug == slug).with_for_update())
    if found is None:
        raise NotFound(NO_COURSE_OF_SLUG(slug=slug))
    return found


def _put(session: Session, by: Connection, course_id: int, member: Member, kept: list[str]) -> str:
    """Apply one row of a roster; returns its kind in the counts of `update_roster`."""
    user = users.find_user(session, by.name, member.id.strip())
    if user is None:
        user = _made(session, by, member)
        _enrol(session, by, user.id, course_id, "", member.role)
        return "made"
    if user.disabled or user.administrator:
        kept.append(member.id)
        return "unchanged"
    changed = _renamed(user, by, member)
    place = session.get(tables.Membership, (user.id, course_id))
    before = place.role if place is not None else ""
    if before in STAFF and member.role == "student":
        kept.append(member.id)
    elif before != member.role:
        _enrol(session, by, user.id, course_id, before, member.role)
        return "changed" if before else "joined"
    return "changed" if changed else "unchanged"


def _made(session: Session, by: Connection, member: Member) -> tables.User:
    subject = member.id.strip()
    user = tables.User(
        name=users.printable(member.name) or subject,
        email=users.printable(member.email),
        created_at=now(session),
    )
    user.identities.append(tables.Identity(provider=by.name, subject=subject))
    session.add(user)
    session.flush()
    write_audit(session, by.name, "user.create", f"user:{user.id}", {"provider": by.name})
    return user


def _renamed(user: tables.User, by: Connection, member: Member) -> bool:
    if any(one.provider != by.name for one in user.identities):
        return False
    name, email = users.printable(member.name) or user.name, users.printable(member.email) or user.email
    changed = (name, email) != (user.name, user.email)
    user.name, user.email = name, email
    return changed


def _enrol(session: Session, by: Connection, user_id: int, course_id: int, before: str, role: str) -> None:
    users.enrol(session, user_id, course_id, role)
    if before or role in STAFF:
        detail = {"before": before, "after": role}
        write_audit(session, by.name, "role.change", f"user:{user_id}", detail, course_id)
