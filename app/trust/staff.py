"""What the pages of trust share: the assignment, for its staff."""

from __future__ import annotations

from sqlalchemy.orm import Session

from app.web import auth
from grading.domain.errors import NotFound
from grading.domain.permissions import Actor, Subject, may
from grading.domain.shared_messages import NO_SUCH_ASSIGNMENT
from grading.store import tables
from grading.store.views import review_worklist


def for_staff(
    session: Session, actor: Actor, assignment_id: int, action: str = "trust.see"
) -> tables.Assignment:
    """An assignment for staff who may do this. Raises NotFound, Forbidden."""
    found = review_worklist.find_assignment(session, assignment_id)
    if not may(actor, "assignment.see", Subject(found.course_id)):
        raise NotFound(NO_SUCH_ASSIGNMENT)
    auth.require(actor, action, Subject(found.course_id))
    return found
