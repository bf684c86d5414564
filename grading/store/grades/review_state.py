"""Whether a grade is reviewed: a person marked it as reviewed, or people graded each of its criteria.

`grading.domain.report_changes.GRADING` says what grades a criterion. A grade is reviewed from the change on
that grades its last criterion, by its author; when that is undone, it is not reviewed any more, unless
somebody marked it as reviewed since. Whether a grade is held does not depend on it: a hold is about the whole
work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.domain.report_changes import GRADING
from grading.store.tables import Change, Grade


def update_review(session: Session, grade: Grade) -> None:
    """Store whether a grade is reviewed, after its criteria were graded or that was undone."""
    query = select(Change.kind, Change.target, Change.by, Change.at, Change.undone_at)
    of_it = query.where(Change.round_id == grade.round_id, Change.kind.in_(GRADING))
    set_review(grade, session.execute(of_it.order_by(Change.id)).all())


def set_review(grade: Grade, changes: Sequence[Any]) -> None:
    """The same with the changes of the round, also undone ones, the first one first."""
    grading = [one for one in changes if one.kind in GRADING]
    open_ones = [one for one in grading if one.undone_at is None]
    if grade.criterion_points and {one.target for one in open_ones} >= grade.criterion_points.keys():
        if grade.reviewed_at is None:
            grade.reviewed_at, grade.reviewed_by = open_ones[-1].at, open_ones[-1].by
    elif any(one.at == grade.reviewed_at for one in grading):
        grade.reviewed_at = grade.reviewed_by = None
