"""LTI as a learning platform of the store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.store.integrations.lti.score_sync import KIND, wake
from grading.store.integrations.lti.tables import (
    LtiDifference,
    LtiLaunch,
    LtiMember,
    LtiPlatform,
    LtiScore,
    LtiTry,
)
from grading.store.learning_platforms import LearningPlatform


def _titles(session: Session, ids: Sequence[str]) -> Iterable[tuple[str, str]]:
    query = select(LtiPlatform.id, LtiPlatform.name).where(LtiPlatform.id.in_([int(one) for one in ids]))
    return [(str(row.id), row.name) for row in session.execute(query)]


PLATFORM = LearningPlatform(
    name=KIND,
    grade_changed=wake,
    personal=(LtiMember, LtiScore, LtiTry, LtiDifference),
    transient=(LtiLaunch,),
    titles={"platform": _titles},
)
