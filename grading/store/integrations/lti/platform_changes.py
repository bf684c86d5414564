"""Changing a registered platform, and removing it with all that is known of it; grades stay."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from grading.domain.errors import Conflict, NotFound
from grading.store.audit import note
from grading.store.integrations.lti.platforms import NewPlatform, cleaned, origins_of
from grading.store.integrations.lti.tables import (
    LtiContext,
    LtiDeployment,
    LtiDifference,
    LtiLaunch,
    LtiLink,
    LtiMember,
    LtiNonce,
    LtiPlatform,
    LtiScore,
    LtiTry,
)


@dataclass(frozen=True)
class Stops:
    """What ends when a platform is removed."""

    name: str
    courses: int
    links: int
    people: int
    waiting: int
    """Scores that did not arrive yet."""


def known(session: Session, platform_id: int) -> NewPlatform:
    """What was said of a platform, on or off. Raises NotFound."""
    row = _row(session, platform_id)
    return NewPlatform(
        row.name, row.issuer, row.client_id, row.authorize_url, row.token_url, row.jwks_url, row.audience,
        tuple(row.origins),
    )  # fmt: skip


def change(session: Session, platform_id: int, new: NewPlatform, by: str) -> tuple[str, ...]:
    """Say other things of a platform; the fields that changed. The issuer stays: people are known by it.

    Raises NotFound, PlatformRefused, and Conflict where the client id is another registration's.
    """
    row = _row(session, platform_id, lock=True)
    new = cleaned(replace(new, issuer=row.issuer))
    same = (LtiPlatform.issuer == row.issuer, LtiPlatform.client_id == new.client_id)
    if session.scalar(select(LtiPlatform.id).where(*same, LtiPlatform.id != row.id)) is not None:
        raise Conflict("This issuer with this client id is registered already.")
    fields = ("name", "client_id", "authorize_url", "token_url", "jwks_url", "audience")
    changed = [name for name in fields if getattr(row, name) != getattr(new, name)]
    for name in changed:
        setattr(row, name, getattr(new, name))
    origins = list(origins_of(new))
    if origins != row.origins:
        row.origins = origins
        changed.append("origins")
    if "jwks_url" in changed:
        # an issuer has one: people are known by it, whichever of its registrations they come by
        keys: dict[str, Any] = {"jwks_url": new.jwks_url, "jwks": {}, "jwks_at": None}
        session.execute(update(LtiPlatform).where(LtiPlatform.issuer == row.issuer).values(keys))
    session.flush()
    if changed:
        note(session, by, "lti.platform.change", f"platform:{platform_id}", {"fields": changed})
    return tuple(changed)


def stops(session: Session, platform_id: int) -> Stops:
    """What a removal would end. Raises NotFound."""
    row = _row(session, platform_id)
    contexts = select(LtiContext.id).where(LtiContext.platform_id == platform_id)
    links = select(LtiLink.id).where(LtiLink.context_id.in_(contexts))
    linked = select(func.count()).select_from(LtiContext)
    linked = linked.where(LtiContext.platform_id == platform_id, LtiContext.course_id.is_not(None))
    people = select(func.count(func.distinct(LtiMember.user_id))).where(LtiMember.context_id.in_(contexts))
    waiting = select(func.count()).select_from(LtiScore)
    waiting = waiting.where(LtiScore.link_id.in_(links), LtiScore.error != "")
    counts = (
        session.scalar(query) or 0
        for query in (linked, select(func.count()).select_from(links.subquery()), people, waiting)
    )
    return Stops(row.name, *counts)


def remove(session: Session, platform_id: int, by: str) -> Stops:
    """Forget a platform, its courses, links and what it was told; what was that is returned. Raises NotFound.

    Accounts, places in courses, hand-ins and grades stay; registered again, people come back to them.
    """
    found = stops(session, platform_id)
    row = _row(session, platform_id, lock=True)
    issuer = row.issuer
    contexts = select(LtiContext.id).where(LtiContext.platform_id == platform_id)
    links = select(LtiLink.id).where(LtiLink.context_id.in_(contexts))
    # whoever tells a score or launches at this moment refers to these: they come to their end first
    session.execute(contexts.order_by(LtiContext.id).with_for_update())
    session.execute(links.order_by(LtiLink.id).with_for_update())
    for told in (LtiDifference, LtiScore, LtiTry):
        session.execute(delete(told).where(told.link_id.in_(links)))
    for part in (LtiLink, LtiMember, LtiLaunch):
        session.execute(delete(part).where(part.context_id.in_(contexts)))
    for own in (LtiContext, LtiDeployment, LtiNonce):
        session.execute(delete(own).where(own.platform_id == platform_id))
    session.delete(row)
    session.flush()
    detail = {"issuer": issuer, "courses": found.courses, "links": found.links}
    note(session, by, "lti.platform.remove", f"platform:{platform_id}", detail)
    return found


def _row(session: Session, platform_id: int, *, lock: bool = False) -> LtiPlatform:
    row = session.get(LtiPlatform, platform_id, with_for_update=lock or None)
    if row is None:
        raise NotFound("There is no such platform.")
    return row
