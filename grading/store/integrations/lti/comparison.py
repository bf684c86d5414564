"""What a platform has beside what we have: differences are kept to be looked at, and nothing is changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from grading.integrations.lti.client import RESULTS
from grading.store.database import now
from grading.store.grades import counted_submission
from grading.store.integrations.lti.scores import Column
from grading.store.integrations.lti.tables import LtiDifference, LtiLink, LtiMember, LtiScore

KIND = RESULTS
NEAR = 0.005
"""Points that platforms may lose by rounding, as a share of the highest points."""


@dataclass(frozen=True)
class Difference:
    """What the two have of somebody, in points as we count them; nothing: no score."""

    user_id: int
    ours: float | None
    theirs: float | None
    max_points: float


def read(pages: Iterable[Any]) -> dict[str, float | None]:
    """Subject -> the share of the highest score that a platform has for them; nothing: no score."""
    found: dict[str, float | None] = {}
    for page in pages:
        for one in page if isinstance(page, list) else []:
            if isinstance(one, dict) and isinstance(one.get("userId"), str | int):
                found[str(one["userId"])] = _share(one)
    return found


def _share(one: Mapping[str, Any]) -> float | None:
    score, most = one.get("resultScore"), one.get("resultMaximum")
    if isinstance(score, bool) or not isinstance(score, int | float):
        return None
    whole = float(most) if isinstance(most, int | float) and most and most > 0 else 1.0
    return float(score) / whole


def keep(session: Session, column: Column, theirs: Mapping[str, float | None]) -> list[Difference]:
    """Keep what differs, in place of what was found before."""
    session.execute(delete(LtiDifference).where(LtiDifference.link_id == column.link_id))
    members = session.scalars(select(LtiMember).where(LtiMember.context_id == column.context_id)).all()
    ours = counted_submission.released_scores(session, column.assignment_id, [one.user_id for one in members])
    busy = set(session.scalars(select(LtiScore.user_id).where(LtiScore.link_id == column.link_id, _unsent())))
    found = [
        differing
        for one in members
        if one.user_id not in busy
        and (differing := difference(one.user_id, ours.get(one.user_id), theirs.get(one.subject)))
    ]
    moment = now(session)
    for one in found:
        fields = {"ours": one.ours, "theirs": one.theirs, "max_points": one.max_points, "found_at": moment}
        session.add(LtiDifference(link_id=column.link_id, user_id=one.user_id, **fields))
    link = session.get_one(LtiLink, column.link_id)
    link.compared_at, link.compare_error = moment, ""
    return found


def _unsent() -> Any:
    """Somebody tells it at this moment: the comparison would see the one before."""
    return LtiScore.busy_until.is_not(None)


def difference(user_id: int, ours: tuple[Any, ...] | None, share: float | None) -> Difference | None:
    """What differs for somebody: our points and highest points, and the share the platform has."""
    points, most = (ours[0], float(ours[1])) if ours is not None else (None, 0.0)
    if ours is None:
        # nothing was ever told; a score that a teacher gave there by hand is their own business
        return None
    theirs = None if share is None else round(share * most, 4)
    if points is None and theirs is None:
        return None
    # some platforms cut a total above the maximum, by bonus, to the maximum: that is theirs to decide
    wanted = (points, min(points, most)) if points is not None else ()
    if theirs is not None and any(abs(one - theirs) <= NEAR * max(most, 1.0) for one in wanted):
        return None
    return Difference(user_id, points, theirs, most)


def keep_error(session: Session, link_id: int, error: str) -> None:
    """A comparison that did not work."""
    link = session.get_one(LtiLink, link_id)
    link.compared_at, link.compare_error = now(session), error[:500]
