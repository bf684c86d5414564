"""Changes of a group of answers: a level, points or a comment for all members at once, undone together.

All changes have one `bulk` id, which the form brings: a form that is sent twice changes nothing the second
time, and undoing that id (`bulk_changes.undo_bulk`) undoes all of them. A member that somebody else graded
since the group was shown is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.domain.base_value import Value
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.domain.report import CriterionGrade, Report
from grading.domain.report_changes import Change
from grading.domain.rubric import Criterion
from grading.scoring.changes import at_level
from grading.similarity.groups import ALONE
from grading.store import tables
from grading.store.bulk import chunks
from grading.store.database import Store, now
from grading.store.review import item_changes, rubric_items
from grading.store.review.answer_groups import is_separate
from grading.store.review.bulk_changes import BATCH, changes_of, lock_current, record, settle
from grading.store.review.edits import NO_REASON, NOTHING_WRITTEN, POINTS_RANGE, ChangeRefused
from grading.store.review.rubric_items import RubricItem
from grading.store.tables import Answer, Assignment, Grade

NO_SUCH_LEVEL = define_message("group_changes.no_such_level", "Choose one of the levels of this criterion.")


class GroupChange(Value):
    """What all members of a group get: a level or points, a comment, a rubric item."""

    level: int | None = None
    points: float | None = None
    """Instead of a level."""
    reason: str = Field(default="", max_length=2_000)
    """Of the points; without one, the words of the level."""
    comment: str = Field(default="", max_length=20_000)
    """Shown at the place of each member's answer."""
    item: str = Field(default="", max_length=32)
    """The rubric item to apply."""
    remove: bool = False
    """Remove that item instead."""


@dataclass(frozen=True)
class GroupResult:
    """What became of a change of a group."""

    changed: int
    skipped: tuple[str, ...]
    """Submissions that were not changed: somebody else graded them meanwhile, or they are no members."""


def change_group(
    store: Store,
    assignment_id: int,
    criterion: Criterion,
    key: str,
    submissions: Sequence[str],
    wanted: GroupChange,
    *,
    bulk: str,
    seen: int,
    actor: Actor,
) -> GroupResult:
    """Change these members of a group; `seen` is `newest` of the groups as shown. Raises ChangeRefused."""
    made = _Made(criterion.id, key, _wanted(criterion, wanted), wanted, bulk, seen, actor)
    done: set[str] = set()
    for some in chunks(list(dict.fromkeys(submissions)), BATCH):
        with store.write() as session:
            done |= _change_batch(session, session.get_one(Assignment, assignment_id), some, made)
    return GroupResult(len(done), tuple(one for one in submissions if one not in done))


def _wanted(criterion: Criterion, wanted: GroupChange) -> list[Change]:
    """The changes of each member; points of a level are computed for each. Raises ChangeRefused."""
    found = []
    reason = wanted.reason.strip()
    if wanted.level is not None:
        if not 0 <= wanted.level <= criterion.highest:
            raise ChangeRefused(NO_SUCH_LEVEL)
        reason = reason or criterion.levels[wanted.level]
        found.append(Change(kind="points", target=criterion.id, reason=reason))
    elif wanted.points is not None:
        if not 0 <= wanted.points <= criterion.points:
            raise ChangeRefused(POINTS_RANGE(most=criterion.points, title=criterion.title))
        if not reason:
            raise ChangeRefused(NO_REASON)
        found.append(Change(kind="points", target=criterion.id, points=wanted.points, reason=reason))
    if wanted.comment.strip():
        found.append(Change(kind="add", text=wanted.comment.strip()))
    if not found and not wanted.item:
        raise ChangeRefused(NOTHING_WRITTEN)
    return found


@dataclass(frozen=True)
class _Made:
    """A change that is made of all members of a group, as its form asks for it."""

    criterion: str
    key: str
    changes: Sequence[Change]
    wanted: GroupChange
    bulk: str
    seen: int
    actor: Actor


def _change_batch(
    session: Session, assignment: Assignment, submissions: Sequence[str], one: _Made
) -> set[str]:
    """Change some members; returns the submissions that have the change now."""
    grades = lock_current(session, assignment.id, submissions)
    made = changes_of(session, [grade.round_id for grade in grades])
    places = _places(session, [grade.round_id for grade in grades], one)
    version = rubric_items.lock_item(session, assignment.id, one.wanted.item) if one.wanted.item else None
    done = set()
    for grade in grades:
        earlier = made[grade.round_id]
        if any(change.bulk == one.bulk for change in earlier):
            done.add(grade.submission_id)
        elif grade.round_id in places and not _changed_since(earlier, one):
            rows = list(_rows(session, grade, places[grade.round_id], one))
            if version is not None:
                rows += _item_rows(session, grade, earlier, version, one)
                done.add(grade.submission_id)  # who has the item already is no exception
            session.add_all(rows)
            if rows:
                settle(session, grade, [*earlier, *rows])
                record(session, assignment, grade, one.bulk, one.actor, "change", rows)
                done.add(grade.submission_id)
    return done


def _places(session: Session, rounds: Sequence[str], one: _Made) -> dict[str, list[Any]]:
    """Round -> where its answer stands, of those that are in the group."""
    query = select(Answer.round_id, Answer.regions).where(
        Answer.round_id.in_(rounds), Answer.criterion == one.criterion
    )
    separate = is_separate(one.criterion)
    if one.key.startswith(ALONE):
        query = query.where(Answer.submission_id == one.key.removeprefix(ALONE), separate)
    else:
        query = query.where(Answer.key == one.key, ~separate)
    found = session.execute(query)
    return {row.round_id: row.regions for row in found}


def _changed_since(earlier: Sequence[tables.Change], one: _Made) -> bool:
    """Whether somebody else changed the criterion after the group was shown."""
    theirs = (change for change in earlier if change.id > one.seen and change.by != one.actor.user_id)
    return any(change.target == one.criterion for change in theirs)


def _rows(
    session: Session, grade: Grade, regions: Sequence[Mapping[str, Any]], one: _Made
) -> Iterator[tables.Change]:
    criteria = Report.model_validate(grade.report).criteria
    found = next((own for own in criteria if own.criterion == one.criterion), None)
    if found is None:
        return
    now_there = {"points": grade.criterion_points.get(one.criterion)}
    for wanted in one.changes:
        value = _value(found, regions, wanted, one.wanted.level)
        same = wanted.kind == "points" and value == now_there
        yield tables.Change(
            round_id=grade.round_id, submission_id=grade.submission_id,
            kind="confirm" if same else wanted.kind, target=wanted.target, value={} if same else value,
            before=now_there if wanted.kind == "points" else {},
            reason=wanted.reason, bulk=one.bulk, by=one.actor.user_id, at=now(session),
        )  # fmt: skip


def _item_rows(
    session: Session, grade: Grade, earlier: Sequence[tables.Change], version: RubricItem, one: _Made
) -> list[tables.Change]:
    """The change that applies or removes an item; none where that is so already."""
    wanted = version.model_copy(update={"active": not one.wanted.remove})
    row = item_changes.new_row(session, grade, wanted, one.bulk, one.actor)
    last = item_changes.last_word(earlier, row.target)
    applies = last is not None and last.kind == "item"
    return [row] if version.criterion == one.criterion and applies == one.wanted.remove else []


def _value(
    found: CriterionGrade, regions: Sequence[Mapping[str, Any]], wanted: Change, level: int | None
) -> dict[str, Any]:
    """What a member gets: points of its own criterion, or the comment at the place of its own answer."""
    if wanted.kind == "points":
        points = at_level(found, level) if level is not None else min(wanted.points or 0.0, found.max_points)
        return {"points": round(points, 2)}
    if not regions:
        return {"text": wanted.text}
    first = regions[0]
    return {"text": wanted.text, "document": first["document"], "cell": first["cell"], "line": first["first"]}
