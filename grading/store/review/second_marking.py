"""Second marking: levels that people give independently of the model, to compare both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from sqlalchemy import distinct, exists, func, select
from sqlalchemy.orm import Session

from grading.domain.base_value import Value
from grading.domain.errors import GraderError, NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.domain.rubric import Criterion, Rubric
from grading.store.audit import write_audit
from grading.store.database import now
from grading.store.grades.final_score import counting_of_assignment
from grading.store.review import level_views
from grading.store.tables import (
    Assignment,
    Grade,
    GuaranteeCandidate,
    GuaranteeMember,
    Mark,
    Round,
    RubricVersion,
    Submission,
)

NO_SUCH_SUBMISSION_TO_MARK = define_message(
    "second_marking.no_such_submission_to_mark", "This submission does not exist."
)
LEVELS_MISSING = define_message("second_marking.levels_missing", "Choose a level for: %(missing)s.")

MOST = 50
"""Submissions of one sample: their ids are in its address."""


class MarkRefused(GraderError):
    """These levels do not match the rubric."""

    code = "mark_refused"
    status = 422
    default_message = define_message("error.mark_refused", "These levels do not match the rubric.")


class ToMark(Value):
    """A submission of a sample."""

    id: str
    marked: bool
    """By the reader."""
    others: int
    """Number of other people who marked it."""


def draw_sample(session: Session, assignment: Assignment, count: int, seed: str) -> list[str]:
    """A random sample of graded submissions, the same for everybody with this seed."""
    query = (
        select(Submission.id)
        .join(Round, (Round.submission_id == Submission.id) & Round.current)
        .join(Grade, Grade.round_id == Round.id)
        .where(Submission.id.in_(counting_of_assignment(assignment)))
    )
    ids = sorted(session.scalars(query), key=lambda one: sha256(f"{seed}:{one}".encode()).digest())
    return ids[: min(max(count, 1), MOST)]


def load_sample(session: Session, assignment_id: int, ids: Sequence[str], actor: Actor) -> tuple[ToMark, ...]:
    """Progress of marking these submissions; those of other assignments are left out."""
    mine = func.count(Mark.id).filter(Mark.by == actor.user_id)
    others = func.count(distinct(Mark.by)).filter(Mark.by != actor.user_id)
    query = (
        select(Submission.id, Round.rubric_version_id, mine.label("mine"), others.label("others"))
        .join(Round, (Round.submission_id == Submission.id) & Round.current)
        .outerjoin(Mark, Mark.round_id == Round.id)
        .where(Submission.assignment_id == assignment_id, Submission.id.in_(ids[:MOST]))
        .group_by(Submission.id, Round.rubric_version_id)
    )
    found = {row.id: row for row in session.execute(query)}
    # who marked some criteria only, for a sample of single levels, has the others left
    used = select(RubricVersion).where(
        RubricVersion.id.in_({row.rubric_version_id for row in found.values()})
    )
    criteria = {one.id: len(one.rubric["criteria"]) for one in session.scalars(used)}
    return tuple(
        ToMark(
            id=one,
            marked=found[one].mine >= criteria[found[one].rubric_version_id],
            others=found[one].others,
        )
        for one in dict.fromkeys(ids)
        if one in found
    )


def rubric_of(session: Session, round_id: str) -> Rubric:
    """The rubric of a round."""
    query = select(RubricVersion.rubric).join(Round).where(Round.id == round_id)
    return Rubric.model_validate(session.execute(query).scalar_one())


class MarkingForm(Value):
    """What the marking form shows."""

    rubric: Rubric
    given: dict[str, float]
    """Criterion -> the level they gave."""
    known: bool
    """They have seen the model's levels."""
    compared: bool
    """They marked it, and pages show how the marks of its sample compare with the model's levels."""


def load_marking_form(session: Session, submission_id: str, round_id: str, actor: Actor) -> MarkingForm:
    """Load what the marking form shows."""
    mine = (Mark.round_id == round_id, Mark.by == actor.user_id)
    seen = level_views.seen(submission_id, actor)
    columns = (RubricVersion.rubric, exists().where(*mine).label("marked"), seen)
    row = session.execute(select(*columns).join(Round).where(Round.id == round_id)).one()
    levels = session.execute(select(Mark.criterion, Mark.level).where(*mine)) if row.marked else ()
    return MarkingForm(
        rubric=Rubric.model_validate(row.rubric),
        given={one.criterion: one.level for one in levels},
        known=row.seen,
        compared=row.marked and _is_compared(session, submission_id),
    )


def save_marks(session: Session, submission_id: str, levels: Mapping[str, float], actor: Actor) -> bool:
    """Save the levels of one person for all criteria; returns whether they count as blind.

    Raises NotFound, MarkRefused. Marking again changes one's own levels.
    """
    round_id = _current_round(session, submission_id)
    criteria = rubric_of(session, round_id).criteria
    missing = [one.title for one in criteria if not 0 <= levels.get(one.id, -1) <= one.highest]
    if missing:
        raise MarkRefused(LEVELS_MISSING(missing=tuple(missing)))
    return _keep_marks(session, round_id, submission_id, {one.id: levels[one.id] for one in criteria}, actor)


def save_mark(session: Session, submission_id: str, criterion: Criterion, level: float, actor: Actor) -> bool:
    """Save the level of one person for one criterion; returns whether it counts as blind.

    Raises NotFound, MarkRefused.
    """
    round_id = _current_round(session, submission_id)
    if not 0 <= level <= criterion.highest:
        raise MarkRefused(LEVELS_MISSING(missing=(criterion.title,)))
    return _keep_marks(session, round_id, submission_id, {criterion.id: level}, actor)


def _current_round(session: Session, submission_id: str) -> str:
    query = select(Round.id).where(Round.submission_id == submission_id, Round.current).with_for_update()
    round_id = session.scalar(query)
    if round_id is None:
        raise NotFound(NO_SUCH_SUBMISSION_TO_MARK)
    return round_id


def _keep_marks(
    session: Session, round_id: str, submission_id: str, levels: Mapping[str, float], actor: Actor
) -> bool:
    rows = {
        row.criterion: row
        for row in session.scalars(select(Mark).where(Mark.round_id == round_id, Mark.by == actor.user_id))
    }
    corrects = any(name in rows and rows[name].level != level for name, level in levels.items())
    informed = corrects and _is_compared(session, submission_id)
    blind = not (informed or level_views.has_seen(session, submission_id, actor))
    if informed:
        level_views.record(session, actor, [submission_id])
    moment = now(session)
    for criterion, level in levels.items():
        row = rows.get(criterion)
        if row is None:
            row = Mark(round_id=round_id, submission_id=submission_id, criterion=criterion, by=actor.user_id)
            session.add(row)
        if row.level != level:
            row.blind = blind
        row.level, row.at = level, moment
    write_audit(session, actor.name, "mark.give", f"submission:{submission_id}", {"blind": blind})
    return blind


def _is_compared(session: Session, submission_id: str) -> bool:
    """Whether a draw with this submission is marked, so that pages show which marks differ from levels."""
    candidate, member = GuaranteeCandidate, GuaranteeMember
    drawn = candidate.turn.is_not(None)
    draws = select(candidate.sample_id, candidate.number).where(
        candidate.submission_id == submission_id, drawn
    )
    for sample_id, number in session.execute(draws).all():
        one = (candidate.sample_id == sample_id, candidate.number == number, drawn)
        of_draw = (candidate.sample_id == member.sample_id) & (
            candidate.submission_id == member.submission_id
        )
        columns = (member.round_id, member.levels, candidate.turns)
        members = select(*columns).join(candidate, of_draw).where(*one)
        current = members.join(Round, (Round.id == member.round_id) & Round.current).subquery()
        marks = select(Mark.round_id, Mark.criterion).join(current, current.c.round_id == Mark.round_id)
        marked = {(row.round_id, row.criterion) for row in session.execute(marks)}
        rows = session.execute(select(current.c.round_id, current.c.levels, current.c.turns))
        if all((row.round_id, name) in marked for row in rows for name in _drawn(row)):
            return True
    return False


def _drawn(row: Any) -> list[str]:
    """The criteria of a submission of a sample whose levels are to be marked."""
    return list(row.levels) if row.turns is None else [name for name, turn in row.turns.items() if turn]
