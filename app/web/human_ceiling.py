"""How far people agree with each other, beside how far grading agrees with them."""

from __future__ import annotations

from sqlalchemy.orm import Session

from app.web import page_cache
from grading.statistics.overview import CriterionFacts, overview
from grading.store.reporting import class_statistics


def load_ceiling(session: Session, course_id: int, assignment_id: int) -> tuple[CriterionFacts, ...]:
    """The criteria of an assignment for which people gave levels."""
    return page_cache.of_assignment("ceiling", session, course_id, assignment_id, _made)


def _made(session: Session, assignment_id: int) -> tuple[CriterionFacts, ...]:
    found = overview(class_statistics.load_submissions(session, assignment_id)).criteria
    return tuple(one for one in found if one.people.n or one.between.pairs.n)
