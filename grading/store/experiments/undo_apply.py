"""Undoing an applied dry run: the rounds that were current become current again, all or none.

It is undone only while everything it made stands as it was made: no grade of it was changed, released,
withdrawn, reviewed or regraded since, no student requested a regrade of one, and nothing else was graded with
its version. The dry run is open again then, and can be applied or discarded as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Select, delete, or_, select
from sqlalchemy.orm import Session, defer

from grading.domain.errors import CannotUndo
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.store import tables
from grading.store.assignments import versions
from grading.store.audit import UNDO, done_at, write_audit
from grading.store.bulk import chunks
from grading.store.change_tracking import TRACKED_MANUALLY, mark_changed
from grading.store.experiments import dry_runs
from grading.store.experiments.apply import grade_state, set_rounds
from grading.store.grades import release
from grading.store.grades.final_score import update_final_score
from grading.store.learning_platforms import grade_changed

CHANGED_SINCE = define_message(
    "undo_apply.changed_since",
    "Nothing was undone: grades of this dry run were changed, released, reviewed or regraded after it was "
    "applied.",
)


def undo_application(session: Session, dry_run_id: str, moment: datetime, actor: Actor) -> int:
    """Undo what the actor applied at this moment; returns how many rounds are current again.

    Raises CannotUndo.
    """
    run = dry_runs.load_dry_run(session, dry_run_id, lock=True)
    applied = next(
        (
            row.detail
            for row in done_at(session, actor.name, moment, "dry_run.apply")
            if row.detail.get("dry_run") == run.id
        ),
        None,
    )
    if applied is None or run.applied_at != moment:
        raise CannotUndo
    made = {
        row.detail["round"]: row.detail[UNDO] for row in done_at(session, actor.name, moment, "grade.replace")
    }
    _lock(session, [*made, *(one["old"] for one in made.values() if one["old"] is not None)])
    grades = _unchanged(session, made, moment)
    if applied.get(UNDO):
        version = session.get_one(tables.RubricVersion, run.rubric_version_id)
        versions.unpublish(session, dry_runs.assignment_of(session, run), version)
    _put_back(session, run, grades, made, actor)
    run.applied_at = None
    detail = {"dry_run": run.id, "replaced": len(grades)}
    write_audit(session, actor.name, "dry_run.undo", f"assignment:{run.assignment_id}", detail)
    return len(grades)


def _lock(session: Session, rounds: Sequence[str]) -> None:
    """Lock all rounds, then all grades, each in one order, as applying does."""
    table, grade = tables.Round, tables.Grade
    for some in chunks(sorted(rounds)):
        session.execute(
            select(table.id).where(table.id.in_(some)).order_by(table.id).with_for_update(key_share=True)
        )
    for some in chunks(sorted(rounds)):
        theirs = select(grade.id).where(grade.round_id.in_(some)).order_by(grade.id)
        session.execute(theirs.with_for_update())


def _unchanged(session: Session, made: Mapping[str, Any], moment: datetime) -> list[tables.Grade]:
    """The grades that were put in place, without those of submissions that are gone. Raises CannotUndo."""
    round_, grade = tables.Round, tables.Grade
    found: list[tables.Grade] = []
    for some in chunks(sorted(made)):
        if session.scalar(_touched(some, moment).limit(1)) is not None:
            raise CannotUndo(CHANGED_SINCE)
        query = select(grade).join(round_, round_.id == grade.round_id).where(round_.id.in_(some))
        query = query.options(defer(grade.report)).execution_options(populate_existing=True)
        found += session.scalars(query.order_by(grade.id))
    if any(grade_state(one) != made[one.round_id]["state"] for one in found):
        raise CannotUndo(CHANGED_SINCE)
    return found


def _touched(rounds: Sequence[str], moment: datetime) -> Select[str]:
    """Those of these rounds that something happened to since."""
    round_, change, mark, asked = tables.Round, tables.Change, tables.Mark, tables.RegradeRequest
    changes = select(change.round_id).where(or_(change.at >= moment, change.undone_at >= moment))
    marks = select(mark.round_id).where(mark.at >= moment)
    return select(round_.id).where(
        round_.id.in_(rounds),
        or_(
            ~round_.current,
            round_.finished_at.is_(None),
            round_.finished_at >= moment,
            round_.id.in_(changes.where(change.round_id.in_(rounds))),
            round_.id.in_(marks.where(mark.round_id.in_(rounds))),
            round_.id.in_(select(asked.round_id).where(asked.round_id.in_(rounds))),
        ),
    )


def _put_back(
    session: Session,
    run: tables.DryRun,
    grades: Sequence[tables.Grade],
    made: Mapping[str, Any],
    actor: Actor,
) -> None:
    """Make the earlier rounds current, and the grades of the dry run as they were."""
    reason = dry_runs.REASONS[run.purpose]
    for some in chunks(grades):
        rounds = [one.round_id for one in some]
        set_rounds(session, rounds, current=False, reason=reason)
        earlier = {round_id: made[round_id]["old"] for round_id in rounds if made[round_id]["old"]}
        set_rounds(session, list(earlier.values()), current=True)
        for table in (tables.Change, tables.Mark):
            gone = delete(table).where(table.round_id.in_(rounds)).execution_options(**TRACKED_MANUALLY)
            session.execute(gone.execution_options(synchronize_session=False))
        mark_changed(session, [one.submission_id for one in some])
        before = _released(session, list(earlier.values()))
        for grade in some:
            _tell(session, grade, before.get(earlier.get(grade.round_id, "")))
            grade.released_at = grade.released_by = grade.reviewed_at = grade.reviewed_by = None
            update_final_score(session, grade)
            detail = {"round": grade.round_id}
            write_audit(
                session, actor.name, "grade.replace_undo", f"submission:{grade.submission_id}", detail
            )
        grade_changed(session, [one.submission_id for one in some])


def _released(session: Session, rounds: Sequence[str]) -> dict[str, tables.Grade]:
    """Round -> its grade, where students see it."""
    grade = tables.Grade
    query = select(grade).where(grade.round_id.in_(rounds), grade.released_at.is_not(None))
    return {one.round_id: one for one in session.scalars(query.options(defer(grade.report)))}


def _tell(session: Session, grade: tables.Grade, before: tables.Grade | None) -> None:
    """Add an event for everybody who saw the grade of the dry run."""
    if grade.released_at is None:
        return
    if before is None:
        release.add_event(session, grade, "grade.withdrawn", f"withdrawn:{grade.round_id}")
    else:
        release.add_event(
            session, before, "grade.changed", f"changed:{before.round_id}:{grade.round_id[:12]}"
        )
