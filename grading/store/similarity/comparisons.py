"""Comparing the submissions of an assignment with each other and with those of earlier courses.

The fingerprints of whole submissions are stored when a round is prepared (`answers` without a criterion). The
sweeper compares them when staff ask for it; pages read what it found. A course of another year has the same
assignment where its short name is the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from grading.domain.permissions import Actor
from grading.similarity import Comparison, SimilarPair, Work, compared, packed, unpacked
from grading.store import periodic_tasks, tables
from grading.store.audit import write_audit
from grading.store.bulk import chunks, delete_rows
from grading.store.database import now
from grading.store.grades.final_score import counting_of_assignment
from grading.store.tables import Answer, Assignment, Round, Submission, SubmissionMember

TASK_PREFIX = "similarity:"
WHOLE = ""
"""The criterion of the answer that is the whole work."""
MOST_EARLIER = 2_000
"""Submissions of other courses that are compared with; the newest."""
MOST_MARKS = 500
"""Shared fingerprints of a pair that are stored."""


def request_comparison(session: Session, assignment_id: int, actor: Actor) -> None:
    """Have the submissions of an assignment compared; asking again while that is not done changes nothing."""
    periodic_tasks.schedule(session, f"{TASK_PREFIX}{assignment_id}")
    write_audit(session, actor.name, "similarity.compare", f"assignment:{assignment_id}")


def is_requested(session: Session, assignment_id: int) -> bool:
    """Whether a comparison was asked for and is not done."""
    return periodic_tasks.is_scheduled(session, f"{TASK_PREFIX}{assignment_id}")


def claim(session: Session, name: str) -> int | None:
    """The assignment of a task, for the first process that claims it."""
    return None if periodic_tasks.claim(session, name) is None else int(name.removeprefix(TASK_PREFIX))


def compare(session: Session, assignment_id: int) -> tuple[Comparison, int, int]:
    """What is found now, with the numbers of own and of earlier submissions it was found in."""
    assignment = session.get_one(Assignment, assignment_id)
    own = list(_works(session, assignment))
    others = select(Assignment).where(Assignment.slug == assignment.slug, Assignment.id != assignment_id)
    earlier: list[Work] = []
    for one in session.scalars(others.order_by(Assignment.created_at.desc(), Assignment.id.desc())):
        earlier += _works(session, one)
    earlier = earlier[:MOST_EARLIER]
    return compared(own, earlier), len(own), len(earlier)


def save_comparison(
    session: Session, assignment_id: int, found: Comparison, works: int, earlier: int
) -> None:
    """Store what was found in the place of what was found before, and end the task."""
    delete_comparison(session, assignment_id)
    row = {"assignment_id": assignment_id, "compared_at": now(session), "works": works, "earlier": earlier}
    session.execute(insert(tables.Comparison).values(**row, silent=list(found.silent)))
    present = _present(session, found.pairs)
    rows = [
        {
            "assignment_id": assignment_id, "one_id": pair.one, "other_id": pair.other, "share": pair.share,
            "fingerprints": packed(pair.marks, MOST_MARKS),
        }
        for pair in found.pairs
        if {pair.one, pair.other} <= present
    ]  # fmt: skip
    if rows:
        session.execute(insert(tables.SimilarPair), rows)
    periodic_tasks.remove(session, f"{TASK_PREFIX}{assignment_id}")


def delete_comparison(session: Session, assignment_id: int) -> None:
    """Delete what was found."""
    delete_rows(session, tables.SimilarPair, tables.SimilarPair.assignment_id == assignment_id)
    session.execute(delete(tables.Comparison).where(tables.Comparison.assignment_id == assignment_id))


def _present(session: Session, pairs: Sequence[SimilarPair]) -> set[str]:
    """Submissions that are still there; somebody may have been erased while they were compared."""
    ids = sorted({one for pair in pairs for one in (pair.one, pair.other)})
    return {
        one
        for some in chunks(ids)
        for one in session.scalars(
            select(Submission.id).where(Submission.id.in_(some)).with_for_update(key_share=True)
        )
    }


def _works(session: Session, assignment: Assignment) -> Iterator[Work]:
    """The counting submissions of an assignment that are prepared."""
    counting = set(session.scalars(counting_of_assignment(assignment)))
    members: dict[str, set[int]] = defaultdict(set)
    of_it = select(SubmissionMember).join(Submission, Submission.id == SubmissionMember.submission_id)
    for member in session.scalars(of_it.where(Submission.assignment_id == assignment.id)):
        members[member.submission_id].add(member.user_id)
    query = (
        select(Answer.submission_id, Answer.fingerprints, Round.student_id)
        .join(Round, (Round.id == Answer.round_id) & Round.current)
        .where(Answer.assignment_id == assignment.id, Answer.criterion == WHOLE)
        .order_by(Answer.submission_id)
    )
    for row in session.execute(query):
        if row.submission_id in counting:
            owners = frozenset({row.student_id, *members[row.submission_id]})
            yield Work(row.submission_id, assignment.id, owners, unpacked(row.fingerprints))
