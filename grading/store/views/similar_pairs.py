"""The pages of similarity: what a comparison found in an assignment, in a course, and of two submissions.

Submissions of another course are shown to its own staff only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, or_, select
from sqlalchemy.orm import Session

from grading.documents import set_apart
from grading.domain.document import Document
from grading.domain.errors import NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.similarity import SharedRegion, SimilarPair, clusters, marks_of, shared_regions, unpacked
from grading.store import tables
from grading.store.bulk import chunks
from grading.store.grades.final_score import counting_of_assignment
from grading.store.similarity.comparisons import WHOLE, is_requested
from grading.store.tables import Answer, Assignment, Course, Round, RubricVersion, Submission, User

NO_SUCH_PAIR = define_message("similarity.no_such_pair", "This pair of submissions does not exist any more.")
MOST_SHOWN = 200
"""Pairs that a page lists."""


@dataclass(frozen=True)
class Side:
    """One submission of a pair."""

    submission_id: str
    student_id: int
    student: str
    number: int
    created_at: datetime
    assignment_id: int
    assignment: str
    course_id: int
    course: str


@dataclass(frozen=True)
class PairLine:
    """Two similar submissions, the earlier one first."""

    one: Side
    other: Side
    share: float
    assignment_id: int
    """Whose comparison found them."""


@dataclass(frozen=True)
class Found:
    """What the last comparison of an assignment found."""

    compared_at: datetime | None
    works: int
    earlier: int
    newer: int
    """Counting submissions that were prepared after it."""
    requested: bool
    """A comparison was asked for and is not done."""
    pairs: tuple[PairLine, ...]
    more: int
    """Pairs that are not listed."""
    clusters: tuple[tuple[str, ...], ...]
    """Submissions that pairs lead from one to the next."""
    silent: tuple[Side, ...]
    """Submissions that could not be compared."""


@dataclass(frozen=True)
class SharedWork:
    """Two students with similar submissions of several assignments of a course."""

    one: str
    other: str
    pairs: tuple[PairLine, ...]


@dataclass(frozen=True)
class PairView:
    """Two submissions side by side."""

    line: PairLine
    one: tuple[Document, ...]
    other: tuple[Document, ...]
    regions: tuple[SharedRegion, ...]


def load_found(session: Session, assignment: Assignment, actor: Actor) -> Found:
    """What was found in an assignment, as far as the reader may see both submissions."""
    row = session.get(tables.Comparison, assignment.id)
    requested = is_requested(session, assignment.id)
    if row is None:
        return Found(None, 0, 0, 0, requested, (), 0, (), ())
    stored = session.scalars(_pairs().where(tables.SimilarPair.assignment_id == assignment.id)).all()
    lines = _visible(session, stored, actor)
    shown = lines[:MOST_SHOWN]
    sides = _sides(session, row.silent)
    return Found(
        compared_at=row.compared_at,
        works=row.works,
        earlier=row.earlier,
        newer=_newer(session, assignment, row.compared_at),
        requested=requested,
        pairs=tuple(shown),
        more=len(lines) - len(shown),
        clusters=clusters(_plain(shown)),
        silent=tuple(sorted(sides.values(), key=lambda side: side.student.lower())),
    )


def load_course(session: Session, course_id: int, actor: Actor) -> tuple[SharedWork, ...]:
    """Pairs of students of a course by the number of their similar submissions; most of them first."""
    of_it = select(Assignment.id).where(Assignment.course_id == course_id)
    stored = session.scalars(_pairs().where(tables.SimilarPair.assignment_id.in_(of_it))).all()
    together: dict[frozenset[int], list[PairLine]] = defaultdict(list)
    for line in _visible(session, stored, actor):
        together[frozenset({line.one.student_id, line.other.student_id})].append(line)
    found = [SharedWork(of[0].one.student, of[0].other.student, tuple(of)) for of in together.values()]
    found.sort(key=lambda work: (-len(work.pairs), -max(pair.share for pair in work.pairs), work.one))
    return tuple(found[:MOST_SHOWN])


def load_pair(session: Session, one_id: str, other_id: str, actor: Actor) -> PairView:
    """Two submissions of a pair. Raises NotFound, also where one of them is not for the reader."""
    pair = tables.SimilarPair
    query = select(pair).where(
        or_(
            (pair.one_id == one_id) & (pair.other_id == other_id),
            (pair.one_id == other_id) & (pair.other_id == one_id),
        )
    )
    stored = session.scalars(query.limit(1)).all()
    lines = _visible(session, stored, actor)
    if not lines:
        raise NotFound(NO_SUCH_PAIR)
    (line,) = lines
    own = [_own_documents(session, side.submission_id) for side in (line.one, line.other)]
    regions = shared_regions(marks_of(own[0]), marks_of(own[1]), unpacked(stored[0].fingerprints))
    return PairView(line, own[0], own[1], regions)


def _pairs() -> Select[Any]:
    pair = tables.SimilarPair
    return select(pair).order_by(pair.share.desc(), func.length(pair.fingerprints).desc(), pair.one_id)


def _plain(lines: Iterable[PairLine]) -> list[SimilarPair]:
    return [
        SimilarPair(line.one.submission_id, line.other.submission_id, line.share, frozenset())
        for line in lines
    ]


def _visible(session: Session, stored: Sequence[tables.SimilarPair], actor: Actor) -> list[PairLine]:
    sides = _sides(session, [one for row in stored for one in (row.one_id, row.other_id)])
    found = []
    for row in stored:
        both = [sides[one] for one in (row.one_id, row.other_id) if one in sides]
        if len(both) == 2 and all(actor.staff_in(side.course_id) for side in both):
            first, second = sorted(both, key=lambda side: (side.created_at, side.submission_id))
            found.append(PairLine(first, second, row.share, row.assignment_id))
    return found


def _sides(session: Session, ids: Iterable[str]) -> dict[str, Side]:
    found: dict[str, Side] = {}
    query: Any = (
        select(
            Submission.id, Submission.student_id, User.name, Submission.number, Submission.created_at,
            Submission.assignment_id, Assignment.title, Assignment.course_id, Course.title.label("course"),
        )
        .join(User, User.id == Submission.student_id)
        .join(Assignment, Assignment.id == Submission.assignment_id)
        .join(Course, Course.id == Assignment.course_id)
    )  # fmt: skip
    for some in chunks(sorted(set(ids))):
        found |= {row.id: Side(*row) for row in session.execute(query.where(Submission.id.in_(some)))}
    return found


def _newer(session: Session, assignment: Assignment, moment: datetime) -> int:
    query = (
        select(func.count())
        .select_from(Answer)
        .join(Round, (Round.id == Answer.round_id) & Round.current)
        .where(Answer.assignment_id == assignment.id, Answer.criterion == WHOLE, Round.prepared_at > moment)
        .where(Answer.submission_id.in_(counting_of_assignment(assignment)))
    )
    return session.scalar(query) or 0


def _own_documents(session: Session, submission_id: str) -> tuple[Document, ...]:
    """The documents of a submission with the student's own lines marked, as its current round has them."""
    query = (
        select(Submission.documents, RubricVersion.starter)
        .join(Round, (Round.submission_id == Submission.id) & Round.current)
        .join(RubricVersion, RubricVersion.id == Round.rubric_version_id)
        .where(Submission.id == submission_id)
    )
    row = session.execute(query).one_or_none()
    if row is None:
        raise NotFound(NO_SUCH_PAIR)
    documents, starter = (
        [Document.model_validate(one) for one in found] for found in (row.documents, row.starter)
    )
    return set_apart(documents, starter)
