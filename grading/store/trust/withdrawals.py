"""What takes a proof back: another rubric, model, weights or prompt, or scores that shifted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.statistics.score_drift import score_drift
from grading.store.assignments.versions import find_published
from grading.store.tables import (
    Assignment,
    Grade,
    GuaranteeDraw,
    GuaranteeMember,
    GuaranteeSample,
    Submission,
)
from grading.store.trust import confidence
from grading.store.trust.grading_ground import GradedSubmission, Origin

Cause = Literal["rubric", "engine", "model", "weights", "prompt", "drift"]
FIELDS: tuple[tuple[Cause, str], ...] = (
    ("engine", "engine"),
    ("model", "model"),
    ("weights", "digest"),
    ("prompt", "prompt_version"),
)
"""Causes by the field of an origin, the one that changes most first."""


@dataclass(frozen=True)
class TakenBack:
    """Why a sample proves nothing any more, and since when."""

    cause: Cause
    at: datetime
    stage: str = ""
    before: str = ""
    after: str = ""


def list_reasons(
    session: Session,
    assignment: Assignment,
    sample: GuaranteeSample,
    graded: Mapping[str, GradedSubmission],
) -> tuple[TakenBack, ...]:
    """Each cause once, the first time it happened; the earliest first."""
    found: dict[Cause, TakenBack] = {}
    for one in sorted(_reasons(session, assignment, sample, graded), key=lambda one: one.at):
        found.setdefault(one.cause, one)
    return tuple(found.values())


def _reasons(
    session: Session,
    assignment: Assignment,
    sample: GuaranteeSample,
    graded: Mapping[str, GradedSubmission],
) -> Iterator[TakenBack]:
    version = find_published(session, assignment)
    if version is not None and version.id != sample.rubric_version_id and version.published_at is not None:
        yield TakenBack("rubric", version.published_at, after=str(version.number))
    known = frozenset(Origin.model_validate(one) for one in sample.ground)
    for one in graded.values():
        if one.graded_at > sample.at:
            for origin in one.origins - known:
                yield _changed(origin, known, one.graded_at)
    yield from _drift(session, sample, graded)


def _drift(
    session: Session, sample: GuaranteeSample, graded: Mapping[str, GradedSubmission]
) -> Iterator[TakenBack]:
    """Whether later work is scored otherwise than what was graded when the sample was drawn.

    All of it as it was graded: second opinions, reviews and releases come later to the newest, which would
    look like a shift.
    """
    alike = [
        one
        for one in graded.values()
        if one.whole and not one.held and one.rubric_version_id == sample.rubric_version_id
    ]
    member, first = GuaranteeMember, GuaranteeDraw
    drawn_of = select(member.submission_id, member.round_id).where(member.sample_id == sample.id)
    rounds = {one.submission_id: one.round_id for one in alike if one.graded_at <= sample.at}
    rounds |= {row.submission_id: row.round_id for row in session.execute(drawn_of)}
    old = rounds.keys() | _graded_by(session, sample.assignment_id, sample.at)
    new = [one for one in alike if one.graded_at > sample.at and one.submission_id not in old]
    if not new:
        return
    scores = confidence.scores_when_graded(session, sample.assignment_id, sample.calibration_id, sample.id)
    # a round that is graded meanwhile by another transaction has no score here
    later = sorted(
        (one for one in new if one.round_id in scores), key=lambda one: (one.graded_at, one.submission_id)
    )
    before = [scores[one] for one in rounds.values() if one in scores]
    seed = select(first.seed).where(first.sample_id == sample.id, first.number == 1)
    found = score_drift(before, [scores[one.round_id] for one in later], seed=session.scalar(seed) or 0)
    if found.alarm:
        yield TakenBack("drift", later[found.seen - 1].graded_at)


def _graded_by(session: Session, assignment_id: int, at: datetime) -> set[str]:
    """Submissions that had a grade then: if they are graded again, this makes no later work of them."""
    query = (
        select(Grade.submission_id)
        .join(Submission, Submission.id == Grade.submission_id)
        .where(Submission.assignment_id == assignment_id, Grade.created_at <= at)
    )
    return set(session.scalars(query))


def _changed(origin: Origin, known: frozenset[Origin], at: datetime) -> TakenBack:
    """What is new about an origin, compared with what graded this stage before."""
    before = [one for one in known if one.stage == origin.stage]
    for cause, name in FIELDS:
        values = {str(getattr(one, name)) for one in before}
        if getattr(origin, name) not in values:
            return TakenBack(cause, at, origin.stage, ", ".join(sorted(values)), str(getattr(origin, name)))
    # each part was there, but not together
    return TakenBack(
        "model", at, origin.stage, ", ".join(sorted({one.model for one in before})), origin.model
    )
