"""All submissions of the students of some submissions, to see which of them count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Select, bindparam, select
from sqlalchemy.orm import Session, aliased

from grading.domain.counting import Attempt, counting
from grading.store.tables import Assignment, Grade, Round, Submission, SubmissionMember

Sees = Callable[[int, int, bool], bool]
"""Whether points are shown: of a course, a student, and released or not."""


def list_superseded(session: Session, ids: Sequence[str], sees: Sees) -> dict[str, Attempt]:
    """Submission -> the one of the same student that counts instead; those that count are left out."""
    rows = session.execute(_attempts(), {"ids": list(ids)}).all() if ids else []
    found: dict[str, dict[str, Attempt]] = {}
    rules = {}
    for row in rows:
        known = sees(row.course_id, row.student_id, row.released_at is not None)
        attempt = Attempt(id=row.id, number=row.number, points=row.final_points if known else None)
        found.setdefault(row.of, {})[row.id] = attempt
        rules[row.of] = row.counts
    chosen = {of: counting(rules[of], list(attempts.values())) for of, attempts in found.items()}
    return {of: one for of, one in chosen.items() if one is not None and one.id != of}


@cache
def _attempts() -> Select[Any]:
    one, other, member = aliased(Submission), aliased(Submission), SubmissionMember
    these = (one.id.in_(bindparam("ids", expanding=True)), one.number > 0)
    pair = (one.id.label("of"), one.assignment_id)
    same = (other.assignment_id == one.assignment_id) & (other.student_id == one.student_id)
    own = select(*pair, other.id.label("id")).join(other, same).where(*these)
    # those of other assignments are left out below: else SQLite would read all of the assignment
    shared = select(*pair, member.submission_id).join(member, member.user_id == one.student_id).where(*these)
    pairs = own.union(shared).subquery()
    columns = (Submission.number, Submission.student_id, Assignment.course_id, Assignment.counts)
    return (
        select(pairs.c.of, pairs.c.id, *columns, Grade.final_points, Grade.released_at)
        .join(Submission, Submission.id == pairs.c.id)
        .where(Submission.assignment_id == pairs.c.assignment_id, Submission.number > 0)
        .join(Assignment, Assignment.id == Submission.assignment_id)
        .outerjoin(Round, (Round.submission_id == Submission.id) & Round.current)
        .outerjoin(Grade, Grade.round_id == Round.id)
    )
