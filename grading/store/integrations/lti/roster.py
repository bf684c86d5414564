"""Bringing a course's roster up to date by the platform's names and roles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.domain.errors import Forbidden, NotFound
from grading.integrations.lti.client import ROSTER, Talk
from grading.integrations.lti.values import LONGEST_SUBJECT, SCOPE_ROSTER, PlatformFailed, role_of
from grading.store import outbox
from grading.store.audit import note
from grading.store.database import Store, now
from grading.store.integrations.lti import launch, platforms
from grading.store.integrations.lti.tables import LtiContext, LtiMember, LtiPlatform
from grading.store.tables import new_id

KIND = "lti-roster"
AT_ONCE = 200
MOST = 20_000


@dataclass(frozen=True)
class Row:
    """Somebody in the platform's list."""

    subject: str
    name: str
    email: str
    role: str
    active: bool


def wish(session: Session, context_id: int, by: str) -> None:
    """Have a roster brought up to date soon."""
    outbox.put(session, KIND, f"{context_id}:{new_id()}", {"context": context_id, "by": by})


def update(store: Store, talk: Talk, context_id: int, by: str) -> tuple[int, int]:
    """Read the platform's list and follow it; how many are in it, and how many are not any more.

    Who is not in it any more keeps their place and their work here; a person takes them out.
    """
    with store.read() as session:
        context = session.get(LtiContext, context_id)
        if context is None or context.course_id is None:
            raise NotFound("There is no course here that belongs to this one.")
        platform, url = platforms.find(session, context.platform_id), context.roster_url
    if not url:
        raise PlatformFailed(
            "The platform does not offer names and roles for this course. Let its administrator turn that "
            "service on for the tool, then open a link there once."
        )
    rows = list(_rows(talk.pages(platform, [SCOPE_ROSTER], url, ROSTER)))
    for start in range(0, len(rows), AT_ONCE):
        with store.write() as session:
            _follow(session, context_id, rows[start : start + AT_ONCE])
    with store.write() as session:
        gone = _leave(session, context_id, {row.subject for row in rows if row.active})
        context = session.get_one(LtiContext, context_id)
        context.roster_at, context.roster_error = now(session), ""
        detail = {"count": len(rows), "gone": gone}
        note(session, by, "lti.roster", f"course:{context.course_id}", detail)
    return len(rows), gone


def keep_error(session: Session, context_id: int, error: str) -> None:
    """It did not work."""
    context = session.get(LtiContext, context_id)
    if context is not None:
        context.roster_error = error[:500]


def _follow(session: Session, context_id: int, rows: Iterable[Row]) -> None:
    context = session.get_one(LtiContext, context_id)
    session.execute(select(LtiPlatform.id).where(LtiPlatform.id == context.platform_id).with_for_update())
    platform = platforms.find(session, context.platform_id)
    for row in rows:
        if not row.active:
            continue
        try:
            user = launch.person(session, platform, row.subject, row.name, row.email)
        except Forbidden:
            continue  # somebody here keeps them out
        launch.belong(session, context, user, row.subject, row.role)


def _leave(session: Session, context_id: int, there: set[str]) -> int:
    """Mark who is not there any more; how many are newly gone."""
    members = session.scalars(select(LtiMember).where(LtiMember.context_id == context_id, LtiMember.active))
    gone = [one for one in members if one.subject not in there]
    for one in gone:
        one.active = False
    return len(gone)


def _rows(pages: Iterable[Any]) -> Iterator[Row]:
    count = 0
    for page in pages:
        listed = page.get("members") if isinstance(page, dict) else None
        if not isinstance(listed, list):
            raise PlatformFailed("The platform's list of people cannot be read.")
        for one in listed:
            row = _row(one) if isinstance(one, dict) else None
            if row is not None:
                count += 1
                yield row
            if count > MOST:
                raise PlatformFailed(f"The platform's list has more than {MOST} people.")


def _row(one: Mapping[str, Any]) -> Row | None:
    """One of the list; nothing for who has no role here or cannot be named."""
    subject, roles = one.get("user_id"), one.get("roles")
    if not isinstance(subject, str) or not subject.isprintable() or subject != subject.strip():
        return None
    role = role_of([r for r in roles if isinstance(r, str)]) if isinstance(roles, list) else None
    if role is None or not 0 < len(subject) <= LONGEST_SUBJECT:
        return None
    name = _text(one, "name") or f"{_text(one, 'given_name')} {_text(one, 'family_name')}".strip()
    active = str(one.get("status") or "Active") == "Active"
    return Row(subject, name[:200], _text(one, "email"), role, active)


def _text(one: Mapping[str, Any], name: str) -> str:
    value = one.get(name)
    return " ".join(value.split())[:200] if isinstance(value, str) and value.isprintable() else ""
