"""Canvas as a learning platform of the store."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import update
from sqlalchemy.orm import Session

from grading.store.integrations.canvas.score_sync import KIND, wake
from grading.store.integrations.canvas.tables import CanvasScore, CanvasTaken, CanvasTry
from grading.store.learning_platforms import LearningPlatform


def _detach(session: Session, submission_ids: Sequence[str]) -> None:
    # that an attempt was pulled stays known, or it would be pulled again
    pulled = update(CanvasTaken).where(CanvasTaken.submission_id.in_(submission_ids))
    session.execute(pulled.values(submission_id=None))


PLATFORM = LearningPlatform(
    name=KIND,
    grade_changed=wake,
    personal=(CanvasTaken, CanvasScore, CanvasTry),
    detach=_detach,
)
