"""Which submissions a reader sees as superseded: another one of the same student counts instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from grading.domain.counting import Attempt
from grading.domain.permissions import Actor, Subject, may
from grading.store.views import attempts


def superseded(session: Session, actor: Actor, ids: Sequence[str]) -> Mapping[str, Attempt]:
    """Submission -> the one that counts instead, by the points that the reader may see."""

    def sees(course_id: int, student_id: int, released: bool) -> bool:
        return may(actor, "score.see", Subject(course_id, student_id, released, (actor.user_id,)))

    return attempts.list_superseded(session, ids, sees)
