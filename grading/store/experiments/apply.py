"""Applying a dry run or re-run: its finished rounds replace the current ones; nothing is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import and_, insert, select, update
from sqlalchemy.orm import Session, aliased, defer

from grading.domain.errors import Conflict
from grading.domain.lateness import LateRule, lateness, own_due
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.domain.round_states import RoundState
from grading.integrations.events import GRADED
from grading.store import outbox, tables
from grading.store.audit import UNDO, write_audit
from grading.store.bulk import chunks
from grading.store.database import now
from grading.store.experiments import dry_runs
from grading.store.grades import release
from grading.store.grades.final_score import update_final_score
from grading.store.grades.review_state import update_review
from grading.store.learning_platforms import grade_changed
from grading.store.review.carry_over import copy_changes
from grading.store.submissions import mail_notifications

NOT_OF_A_CHANGE = define_message("apply.not_of_a_change", "Only a dry run of a draft can be applied.")

SYSTEM = "system"


@dataclass(frozen=True)
class Applied:
    """The outcome for a dry run's rounds."""

    replaced: int = 0
    kept_released: int = 0
    """Students see a released grade already, and it stays."""
    kept_better: int = 0
    """The current grade is complete, or released, and the new one is not, or is held."""
    unfinished: int = 0
    not_graded: int = 0
    """The new round has no grade."""


@dataclass(frozen=True)
class RoundPair:
    """A finished round that is not current, with the current one of its submission, if any."""

    submission_id: str
    student_id: int
    new_round: str
    new_state: str
    new_grade: int | None
    new_held: bool
    new_points: float | None
    old_round: str | None
    newer: bool
    """The current round is newer."""
    old_state: str | None
    old_grade: int | None
    old_points: float | None
    released_at: datetime | None
    withdrawn: bool
    reviewed_at: datetime | None
    reviewed_by: int | None
    credit: float | None
    """Late credit by the present rule; None: as when it was graded."""
    at_once: bool
    """The assignment releases automatically what is not held."""

    @property
    def shown(self) -> bool:
        """Whether the new grade is released when it replaces the old one."""
        whole = self.new_state == RoundState.GRADED and not self.new_held
        return self.released_at is not None or (self.at_once and whole and not self.withdrawn)


def apply_dry_run(session: Session, dry_run_id: str, actor: Actor, *, keep_released: bool) -> Applied:
    """Make the rounds of a dry run current and publish its version, all or nothing. Raises Conflict.

    With `keep_released`, released grades stay as they are; else students see the new grade, and an event
    says so.
    """
    run = dry_runs.load_dry_run(session, dry_run_id, lock=True)
    dry_runs.require_open(run)
    if run.purpose != "rubric":
        raise Conflict(NOT_OF_A_CHANGE)
    dry_runs.require_newest(session, run)
    version = session.get_one(tables.RubricVersion, run.rubric_version_id)
    run.applied_at = now(session)
    publishes = version.published_at is None
    version.published_at = version.published_at or run.applied_at
    found = _pairs(session, tables.DryRunRound.dry_run_id == run.id)
    replaced, counts = [], {"kept_released": 0, "kept_better": 0, "unfinished": 0, "not_graded": 0}
    for pair in found:
        why = _stays(pair, keep_released)
        if why:
            counts[why] += 1
        else:
            replaced.append(pair)
    _replace(session, replaced, actor.user_id, actor.name)
    detail = {"dry_run": run.id, "version": version.number, "replaced": len(replaced), **counts}
    detail[UNDO] = publishes
    write_audit(session, actor.name, "dry_run.apply", f"assignment:{run.assignment_id}", detail)
    return Applied(replaced=len(replaced), **counts)


def apply_rerun(session: Session, round_id: str) -> None:
    """Make a finished round of a re-run current, if it was made to replace the current one."""
    link, run = tables.DryRunRound, tables.DryRun
    query = select(run.by).join(link, link.dry_run_id == run.id)
    asked = query.where(link.round_id == round_id, run.purpose == "rerun", run.discarded_at.is_(None))
    row = session.execute(asked).first()
    if row is None:
        return
    for pair in _pairs(session, link.round_id == round_id):
        if not _stays(pair, keep_released=False):
            _replace(session, [pair], row.by, SYSTEM)


def _stays(pair: RoundPair, keep_released: bool) -> str:
    """Why the current round stays; empty: it is replaced."""
    if pair.new_state not in dry_runs.ENDED:
        return "unfinished"
    if pair.new_grade is None:
        return "not_graded"
    if pair.newer:
        return "kept_better"
    whole = pair.new_state == RoundState.GRADED
    if pair.released_at is not None:
        return "kept_released" if keep_released else "" if whole and not pair.new_held else "kept_better"
    return "kept_better" if pair.old_state == RoundState.GRADED and not whole else ""


def _pairs(session: Session, where: Any) -> list[RoundPair]:
    """The rounds of a dry run with the current ones, all locked."""
    _lock(session, where)
    ids = list(session.scalars(select(tables.DryRunRound.round_id).where(where)))
    found, moment = list[RoundPair](), now(session)
    for some in chunks(sorted(ids)):
        found += [_pair(row, moment) for row in session.execute(_query().where(tables.Round.id.in_(some)))]
    return found


def _lock(session: Session, where: Any) -> None:
    """Lock all rounds, then all grades, each in one order, to avoid deadlocks."""
    own, link = tables.Round, tables.DryRunRound
    mine = own.id.in_(select(link.round_id).where(where))
    theirs = own.submission_id.in_(select(link.submission_id).where(where))
    rounds = select(own.id).where(mine | (theirs & own.current)).order_by(own.id)
    session.execute(rounds.with_for_update(key_share=True))
    # a statement of its own: who held a round may have let another one count
    grade = select(tables.Grade.id).join(own, own.id == tables.Grade.round_id).order_by(tables.Grade.id)
    session.execute(grade.where(mine | (theirs & own.current)).with_for_update(of=tables.Grade))


def _query() -> Any:
    new, grade = tables.Round, tables.Grade
    old, before = aliased(tables.Round, name="old"), aliased(tables.Grade, name="before")
    own, submission, assignment = tables.Extension, tables.Submission, tables.Assignment
    return (
        select(
            new.submission_id,
            new.student_id,
            new.id.label("new_round"),
            new.number.label("new_number"),
            new.state.label("new_state"),
            grade.id.label("new_grade"),
            grade.held.label("new_held"),
            grade.final_points.label("new_points"),
            old.id.label("old_round"),
            old.number.label("old_number"),
            old.state.label("old_state"),
            before.id.label("old_grade"),
            before.final_points.label("old_points"),
            before.released_at,
            before.released_by,
            before.reviewed_at,
            before.reviewed_by,
            submission.created_at,
            assignment.due_at,
            own.due_at.label("own_due"),
            assignment.late,
            assignment.release,
            assignment.release_at,
            grade.credit.label("had"),
        )
        .join(submission, submission.id == new.submission_id)
        .join(assignment, assignment.id == submission.assignment_id)
        .outerjoin(own, and_(own.assignment_id == assignment.id, own.student_id == submission.student_id))
        .outerjoin(grade, grade.round_id == new.id)
        .outerjoin(old, and_(old.submission_id == new.submission_id, old.current))
        .outerjoin(before, before.round_id == old.id)
        .where(~new.current)
        .order_by(new.id)
    )


def _pair(row: Any, moment: datetime) -> RoundPair:
    rule = LateRule.model_validate(row.late or {})
    credit = lateness(row.created_at, own_due(row.due_at, row.own_due), rule).credit
    return RoundPair(
        submission_id=row.submission_id,
        student_id=row.student_id,
        new_round=row.new_round,
        new_state=row.new_state,
        new_grade=row.new_grade,
        new_held=bool(row.new_held),
        new_points=row.new_points,
        old_round=row.old_round,
        newer=row.old_round is not None and row.old_number > row.new_number,
        old_state=row.old_state,
        old_grade=row.old_grade,
        old_points=row.old_points,
        released_at=row.released_at,
        withdrawn=row.released_at is None and row.released_by is not None,
        reviewed_at=row.reviewed_at,
        reviewed_by=row.reviewed_by,
        credit=None if credit == row.had else credit,
        at_once=release.is_automatic(row.release, row.release_at, moment),
    )


def _replace(session: Session, pairs: Sequence[RoundPair], by: int | None, name: str) -> None:
    """Make the new rounds current, and carry people's changes over."""
    states: dict[str, list[Any]] = {}
    for some in chunks(pairs):
        old = [one.old_round for one in some if one.old_round is not None]
        set_rounds(session, old, current=False)
        # from now on it is an ordinary grading
        set_rounds(session, [one.new_round for one in some], current=True, reason=dry_runs.REASONS["rerun"])
        touched = _carry(session, some)
        for pair, grade in _grades(session, some):
            _take_over(session, pair, grade, by, settled_anew=pair.submission_id in touched)
            states[pair.new_round] = grade_state(grade)
        _tell(session, some)
    for pair in pairs:
        detail: dict[str, Any] = {
            "before": pair.old_points,
            "after": pair.new_points,
            "round": pair.new_round,
        }
        detail[UNDO] = {"old": pair.old_round, "state": states.get(pair.new_round)}
        write_audit(session, name, "grade.replace", f"submission:{pair.submission_id}", detail)


def grade_state(grade: tables.Grade) -> list[Any]:
    """What people or rules may change of a grade, as JSON: equal as long as nothing did."""
    moments = [one and one.astimezone(UTC).isoformat() for one in (grade.released_at, grade.reviewed_at)]
    return [grade.final_points, grade.held, grade.released_by, grade.reviewed_by, *moments]


def set_rounds(session: Session, ids: Sequence[str], **values: Any) -> None:
    """Set columns of these rounds."""
    if ids:
        where = update(tables.Round).where(tables.Round.id.in_(ids)).values(**values)
        session.execute(where.execution_options(synchronize_session=False))


def _grades(session: Session, pairs: Sequence[RoundPair]) -> list[tuple[RoundPair, tables.Grade]]:
    """The new grades without their reports, which are read only where points are computed again."""
    ids = [one.new_grade for one in pairs]
    query = select(tables.Grade).options(defer(tables.Grade.report)).where(tables.Grade.id.in_(ids))
    found = {grade.id: grade for grade in session.scalars(query)}
    return [(one, found[one.new_grade]) for one in pairs if one.new_grade in found]


def _take_over(
    session: Session, pair: RoundPair, grade: tables.Grade, by: int | None, *, settled_anew: bool
) -> None:
    """Copy release and review of the old grade to the new one."""
    if settled_anew or pair.credit is not None:
        update_final_score(session, grade)
    if pair.shown:
        grade.released_at, grade.released_by = now(session), by if pair.released_at else None
    elif pair.withdrawn:
        grade.released_by = by  # a person took it back; the date does not bring it out again
    if pair.reviewed_at is not None and not grade.held and grade.final_points == pair.old_points:
        grade.reviewed_at, grade.reviewed_by = pair.reviewed_at, pair.reviewed_by
    if settled_anew:
        update_review(session, grade)


def _tell(session: Session, pairs: Sequence[RoundPair]) -> None:
    """Add the events of any grading; these rounds had none, unless they were applied before and undone."""
    moment = now(session)
    news = [(f"submission.{GRADED[one.new_state]}", f"{one.new_state}:{one.new_round}", one) for one in pairs]
    news += [
        ("grade.released", f"released:{one.new_round}", one) for one in pairs if one.released_at is not None
    ]
    sent = outbox.existing_keys(session, "event", [key for _, key, _ in news])
    rows = [
        {
            "kind": "event",
            "key": f"{key}:{moment:%Y%m%d%H%M%S%f}" if key in sent else key,
            "payload": {"type": what, "submission": one.submission_id},
            "created_at": moment,
            "not_before": moment,
        }
        for what, key, one in news
    ]
    if rows:
        session.execute(insert(tables.Outbox), rows)
    mail_notifications.add_result_letters(session, [one.new_round for one in pairs if one.shown])
    grade_changed(session, [one.submission_id for one in pairs])


def _carry(session: Session, pairs: Sequence[RoundPair]) -> set[str]:
    """Copy changes and marks to the new rounds; returns submissions whose points may change."""
    old = {(one.old_grade, one.new_grade): one for one in pairs if one.old_grade and one.new_grade}
    touched = copy_changes(session, [(was, to) for was, to in old if was and to])
    return {pair.submission_id for (_, to), pair in old.items() if to in touched}
