"""Records of what was released unread, for exports: the guarantee of each grade, and its sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from grading.store.tables import (
    Assignment,
    Grade,
    GuaranteeCandidate,
    GuaranteeDraw,
    GuaranteeMember,
    GuaranteeRelease,
    GuaranteeSample,
)
from grading.store.trust import sentences
from grading.store.trust.release_samples import wanted_of


def load_statements(session: Session, assignment_id: int) -> dict[str, str]:
    """Submission -> the guarantee in English, of those that are still released on its grounds."""
    member, row, sample = GuaranteeMember, GuaranteeRelease, GuaranteeSample
    query = (
        select(row, sample, member.submission_id)
        .join(sample, sample.id == row.sample_id)
        .join(member, member.sample_id == sample.id)
        .join(Grade, (Grade.round_id == member.round_id) & (Grade.released_at == row.at))
        .where(sample.assignment_id == assignment_id)
    )
    return {
        submission: sentences.statement(wanted_of(its), made.proven, made.marks, made.threshold)
        for made, its, submission in session.execute(query)
    }


def record(session: Session, assignment: Assignment) -> str:
    """All releases of an assignment with their samples, as a text in English; empty without any."""
    query = (
        select(GuaranteeRelease, GuaranteeSample)
        .join(GuaranteeSample, GuaranteeSample.id == GuaranteeRelease.sample_id)
        .where(GuaranteeSample.assignment_id == assignment.id)
        .order_by(GuaranteeRelease.id)
    )
    return "\n".join(
        line for made, sample in session.execute(query) for line in _lines(session, made, sample)
    )


def _lines(session: Session, made: GuaranteeRelease, sample: GuaranteeSample) -> Iterator[str]:
    member = GuaranteeMember
    still = select(func.count()).select_from(Grade).join(member, member.round_id == Grade.round_id)
    still = still.where(member.sample_id == sample.id, Grade.released_at == made.at)
    yield (
        f"{made.at:%Y-%m-%d %H:%M} UTC: {made.count} grades released as proven, "
        f"{session.scalar(still)} of them still released."
    )
    yield sentences.statement(wanted_of(sample), made.proven, made.marks, made.threshold)
    candidate, draw = GuaranteeCandidate, GuaranteeDraw
    of_draw = (draw.sample_id == candidate.sample_id) & (draw.number == candidate.number)
    drawn = (
        select(candidate.submission_id, candidate.turns)
        .join(draw, of_draw)
        # what was drawn after the release is no part of what it rests on
        .where(candidate.sample_id == sample.id, candidate.turn.is_not(None), draw.at <= made.at)
        .order_by(GuaranteeCandidate.number, GuaranteeCandidate.turn)
    )
    named = ", ".join(_named(row.submission_id, row.turns) for row in session.execute(drawn))
    yield f"Sample {sample.id}: submissions {named}."
    yield ""


def _named(submission_id: str, turns: Mapping[str, int] | None) -> str:
    """A submission of a sample, with the criteria whose levels were drawn where not all were."""
    if turns is None:
        return submission_id
    return f"{submission_id} ({', '.join(name for name, turn in turns.items() if turn)})"
