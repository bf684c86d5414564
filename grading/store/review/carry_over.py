"""Carrying people's changes over from one grade of a submission to a newer one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from grading.domain.report import Report
from grading.domain.report_changes import Change
from grading.scoring.carry_over import Carried, carried
from grading.store import tables
from grading.store.bulk import chunks
from grading.store.change_tracking import TRACKED_MANUALLY, mark_changed
from grading.store.grades import final_score, review_state

CHANGE_COLUMNS = ("submission_id", "kind", "value", "before", "reason", "bulk", "by", "at")
MARK_COLUMNS = ("submission_id", "criterion", "level", "blind", "by", "at")


@dataclass(frozen=True)
class CarriedChanges:
    """A grade's report and credit, with the changes of the grade before it."""

    round_id: str
    report: Report
    credit: float
    kept: Carried


def load_carry_over(session: Session, pairs: Sequence[tuple[int, int]]) -> dict[int, CarriedChanges]:
    """For pairs (old grade, new grade) of a submission: what is carried over, by the new one.

    Pairs without changes are left out; the number of queries does not depend on the number of pairs.
    """
    by_round = _changed(session, [old for old, _ in pairs])
    if not by_round:
        return {}
    wanted = [(old, new) for old, new in pairs if old in by_round]
    grades = _grades(session, [number for pair in wanted for number in pair])
    found = {}
    for old, new in wanted:
        if old in grades and new in grades:
            after = Report.model_validate(grades[new].report)
            kept = carried(by_round[old], Report.model_validate(grades[old].report), after)
            found[new] = CarriedChanges(
                round_id=grades[new].round_id, report=after, credit=grades[new].credit, kept=kept
            )
    return found


def copy_changes(session: Session, pairs: Sequence[tuple[int, int]]) -> set[int]:
    """Copy changes and marks to the rounds of the new grades; returns those whose points may change."""
    found = load_carry_over(session, pairs)
    targets: dict[int, tuple[str, str]] = {
        change.id: (change.target, one.round_id) for one in found.values() for change in one.kept.changes
    }
    rows: list[dict[str, Any]] = []
    for some in chunks(sorted(targets)):
        for row in session.scalars(
            select(tables.Change).where(tables.Change.id.in_(some)).order_by(tables.Change.id)
        ):
            target, round_id = targets[row.id]
            rows.append({**_columns(row, CHANGE_COLUMNS), "target": target, "round_id": round_id})
    if rows:
        session.execute(insert(tables.Change), rows, execution_options=TRACKED_MANUALLY)
        mark_changed(session, {row["submission_id"] for row in rows})
    _copy_marks(session, pairs)
    return set(found)


def carry_to_round(session: Session, round_id: str, submission_id: str) -> None:
    """Carry changes over to a current round that got its grade.

    Nothing happens where it has changes of its own, from when it was incomplete.
    """
    change, own = tables.Change, tables.Round
    number = select(own.number).where(own.id == round_id).scalar_subquery()
    newest = select(own.id).join(change, change.round_id == own.id).order_by(own.number.desc()).limit(1)
    before = session.scalar(newest.where(change.submission_id == submission_id, own.number <= number))
    if before is None or before == round_id:
        return
    grade = tables.Grade
    found = session.execute(select(grade.round_id, grade.id).where(grade.round_id.in_((before, round_id))))
    ids = {row.round_id: row.id for row in found}
    if len(ids) == 2 and copy_changes(session, [(ids[before], ids[round_id])]):
        settled = session.get_one(grade, ids[round_id])
        final_score.update_final_score(session, settled)
        review_state.update_review(session, settled)


def _copy_marks(session: Session, pairs: Sequence[tuple[int, int]]) -> None:
    """Copy the levels of second marking."""
    grade, mark = tables.Grade, tables.Mark
    rounds: dict[int, str] = {}
    for some in chunks([number for pair in pairs for number in pair]):
        found = session.execute(select(grade.id, grade.round_id).where(grade.id.in_(some)))
        rounds |= {row.id: row.round_id for row in found}
    to = {rounds[old]: rounds[new] for old, new in pairs if old in rounds and new in rounds}
    rows: list[dict[str, Any]] = []
    for few in chunks(list(to)):
        marks = session.scalars(select(mark).where(mark.round_id.in_(few)))
        rows += [{**_columns(one, MARK_COLUMNS), "round_id": to[one.round_id]} for one in marks]
    if rows:
        session.execute(insert(mark), rows)


def _columns(row: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}


def _changed(session: Session, grade_ids: Sequence[int]) -> dict[int, list[Change]]:
    """Grade -> people's changes that are not undone, the first one first."""
    found: dict[int, list[Change]] = {}
    change, grade = tables.Change, tables.Grade
    for some in chunks(grade_ids):
        query = (
            select(grade.id, change, tables.User.name)
            .join(change, change.round_id == grade.round_id)
            .outerjoin(tables.User, tables.User.id == change.by)
            .where(grade.id.in_(some), change.undone_at.is_(None))
            .order_by(change.id)
        )
        for number, row, name in session.execute(query):
            fields = {**row.value, "id": row.id, "kind": row.kind, "target": row.target}
            whole = {**fields, "reason": row.reason, "by": name or ""}
            found.setdefault(number, []).append(Change.model_validate(whole))
    return found


def _grades(session: Session, ids: Sequence[int]) -> dict[int, tables.Grade]:
    found: dict[int, tables.Grade] = {}
    for some in chunks(ids):
        found |= {
            one.id: one for one in session.scalars(select(tables.Grade).where(tables.Grade.id.in_(some)))
        }
    return found
