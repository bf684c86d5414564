"""The levels that people gave: marks, changes of points, reviews that left a level as it was."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import Subquery, select
from sqlalchemy.orm import Session

from grading.domain.report import CriterionGrade
from grading.domain.report_changes import Change
from grading.statistics.submission_data import LevelSource, PersonLevel
from grading.store import tables


def load_changes(session: Session, chosen: Subquery) -> dict[str, list[Change]]:
    """People's changes that are not undone, by round; the first one first. `by` is a user's id here."""
    change = tables.Change
    query = (
        select(change.round_id, change.id, change.kind, change.target, change.value, change.by)
        .join(chosen, chosen.c.id == change.submission_id)
        .where(change.undone_at.is_(None))
        .order_by(change.id)
    )
    found: dict[str, list[Change]] = defaultdict(list)
    for row in session.execute(query):
        fields = {**row.value, "id": row.id, "kind": row.kind, "target": row.target}
        found[row.round_id].append(Change.model_validate({**fields, "by": f"{row.by or 0}"}))
    return found


def load_marks(session: Session, chosen: Subquery) -> dict[str, list[tables.Mark]]:
    """Second marks by round, the first one first."""
    mark = tables.Mark
    query = select(mark).join(chosen, chosen.c.id == mark.submission_id).order_by(mark.id)
    found: dict[str, list[tables.Mark]] = defaultdict(list)
    for row in session.scalars(query):
        found[row.round_id].append(row)
    return found


def levels(
    work: str,
    reviewer: int | None,
    grader: Mapping[str, CriterionGrade],
    marks: Sequence[tables.Mark],
    changes: Sequence[Change],
) -> Iterator[PersonLevel]:
    """Levels that people gave a submission's criteria: marks, else a change, else a confirmation or a review
    that left the level.
    """
    agreed = {one.target: int(one.by) for one in changes if one.kind == "confirm"}
    given = {one.target: one for one in changes if one.kind == "points" and one.points is not None}
    for name, one in grader.items():
        own = [mark for mark in marks if mark.criterion == name]
        for mark in own:
            how: LevelSource = "blind" if mark.blind else "seen"
            yield PersonLevel(work, name, mark.by or 0, mark.level, one.level, how)
        if own:
            continue
        if (change := given.get(name)) is not None and one.max_points > 0:
            share = min(max((change.points or 0.0) / one.max_points, 0.0), 1.0)
            level = round(share * one.highest, 2)
            yield PersonLevel(work, name, int(change.by), level, one.level, "changed")
        elif (by := agreed.get(name, reviewer)) is not None and one.level is not None:
            yield PersonLevel(work, name, by, one.level, one.level, "accepted")
