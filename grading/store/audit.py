"""The audit: who did what to which object, and when."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from grading.store import tables
from grading.store.database import now


def note(
    session: Session, actor: str, action: str, object_: str, detail: dict[str, Any] | None = None
) -> None:
    """Add one row; `actor` and `object_` look like `user:3`, `submission:1f…`."""
    session.add(
        tables.Audit(
            at=now(session), actor=actor[:100], action=action[:60], object=object_[:100], detail=detail or {}
        )
    )
