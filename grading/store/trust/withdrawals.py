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
from grading.store.tables import Assignment, GuaranteeDraw, GuaranteeMember, GuaranteeSample
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
    """Whether scores of later submissions are other ones than those that the sample was drawn of."""
    member, first = GuaranteeMember, GuaranteeDraw
    query = select(member.submission_id, member.scores).where(member.sample_id == sample.id)
    before = {row.submission_id: max(row.scores.values(), default=0.0) for row in session.execute(query)}
    later = sorted(
        (
            one
            for one in graded.values()
            # held and partial grades were not among the candidates either
            if one.submission_id not in before
            and one.graded_at > sample.at
            and one.whole
            and one.state not in ("held", "partial")
        ),
        key=lambda one: (one.graded_at, one.submission_id),
    )
    if not later:
        return
    known = confidence.scores(session, sample.assignment_id, sample.calibration_id)
    scores = [max(known[one.round_id, name] for name in one.levels) for one in later]
    seed = select(first.seed).where(first.sample_id == sample.id, first.number == 1)
    found = score_drift(list(before.values()), scores, seed=session.scalar(seed) or 0)
    if found.alarm:
        yield TakenBack("drift", later[found.seen - 1].graded_at)


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
