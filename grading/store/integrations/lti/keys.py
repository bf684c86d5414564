"""The tool's keys: made when first needed, rotated, shown as long as a platform may still have use of one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from grading.integrations.lti.keys import ToolKey, new_key, public_jwk
from grading.store.audit import note
from grading.store.database import Store, now
from grading.store.integrations.lti.tables import LtiKey

SHOWN_FOR = timedelta(days=7)
"""How long a key that was replaced is still shown: platforms keep what they fetched."""


def signing(store: Store) -> ToolKey:
    """The key that signs now; the first one is made here."""
    with store.read() as session:
        found = _newest(session)
    if found is not None:
        return found
    made = new_key()  # takes a moment: not while others wait for the database
    with store.write() as session:
        known = _newest(session)
        return known if known is not None else _add(session, made, "system")


def rotate(session: Session, made: ToolKey, by: str) -> None:
    """Sign with this one from now on; those before it are shown for a week."""
    moment = now(session)
    for row in session.scalars(select(LtiKey).where(LtiKey.shown_until.is_(None)).with_for_update()):
        row.shown_until = moment + SHOWN_FOR
    _add(session, made, by)


def jwks(session: Session) -> dict[str, Any]:
    """What platforms are shown."""
    valid = or_(LtiKey.shown_until.is_(None), LtiKey.shown_until > now(session))
    rows = session.scalars(select(LtiKey).where(valid).order_by(LtiKey.created_at.desc(), LtiKey.kid))
    return {"keys": [public_jwk(ToolKey(row.kid, row.private)) for row in rows]}


def _newest(session: Session) -> ToolKey | None:
    query = select(LtiKey).where(LtiKey.shown_until.is_(None)).order_by(LtiKey.created_at.desc(), LtiKey.kid)
    row = session.scalar(query.limit(1))
    return None if row is None else ToolKey(row.kid, row.private)


def _add(session: Session, made: ToolKey, by: str) -> ToolKey:
    session.add(LtiKey(kid=made.kid, private=made.private, created_at=now(session)))
    session.flush()
    note(session, by, "lti.key", f"key:{made.kid}")
    return made
