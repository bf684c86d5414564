"""Rubric items: comments with points that graders reuse, each for one criterion of an assignment.

An item is stored in versions of which the last one counts. Applying it to a submission is a change of the
kind `item`, which keeps the text and points that the item had then; `item_changes` edits them everywhere.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.domain.base_value import Value
from grading.domain.errors import GraderError, NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.domain.report_changes import ITEM, split_item_target
from grading.domain.rubric import Criterion
from grading.store import tables
from grading.store.assignments.settings import lock_assignment
from grading.store.audit import write_audit
from grading.store.database import now
from grading.store.tables import Assignment, Change, Round, Submission

NO_SUCH_ITEM = define_message("rubric_items.no_such_item", "This rubric item does not exist.")
TEXT_LENGTH = define_message("rubric_items.text_length", "Enter a text of 1 to %(most)s characters.")
POINTS_RANGE = define_message(
    "rubric_items.points_range",
    "Enter at most %(most)s points, with a minus sign (−) to deduct them; 0 for a comment without points.",
)
FULL = define_message(
    "rubric_items.full", "This criterion already has %(most)s rubric items. Delete some first."
)
MAX_ITEMS = 100
"""Items of a criterion."""
MAX_CHARS = 2_000


class ItemRefused(GraderError):
    """This rubric item cannot be saved."""

    code = "item_refused"
    status = 422
    default_message = define_message("error.item_refused", "This rubric item cannot be saved.")


class RubricItem(Value):
    """A version of an item."""

    item: str
    number: int
    """Of the version, from 1."""
    criterion: str
    text: str
    points: float
    active: bool = True


def list_items(session: Session, assignment_id: int, criterion: str = "") -> tuple[RubricItem, ...]:
    """The items of a criterion, or of all, the oldest first; without deleted ones."""
    table = tables.RubricItem
    query = select(table).where(table.assignment_id == assignment_id).order_by(table.id)
    if criterion:
        query = query.where(table.criterion == criterion)
    newest: dict[str, RubricItem] = {}
    for row in session.scalars(query):
        newest[row.item] = _item(row)
    return tuple(one for one in newest.values() if one.active)


def load_item(session: Session, assignment_id: int, item: str) -> RubricItem:
    """The version of an item that counts. Raises NotFound, also for a deleted one."""
    found = newest_version(session, assignment_id, item)
    if not found.active:
        raise NotFound(NO_SUCH_ITEM)
    return _item(found)


def lock_item(session: Session, assignment_id: int, item: str) -> RubricItem:
    """The version of an item that counts, and stays so until the transaction ends. Raises NotFound."""
    # an edit locks the assignment while it looks for the grades that have the item
    query = select(Assignment.id).where(Assignment.id == assignment_id)
    session.execute(query.with_for_update(read=True, of=Assignment))
    return load_item(session, assignment_id, item)


def newest_version(session: Session, assignment_id: int, item: str) -> tables.RubricItem:
    """The row of the version that counts. Raises NotFound."""
    table = tables.RubricItem
    query = select(table).where(table.item == item, table.assignment_id == assignment_id)
    found = session.scalar(query.order_by(table.number.desc()).limit(1))
    if found is None:
        raise NotFound(NO_SUCH_ITEM)
    return found


def load_version(session: Session, assignment_id: int, item: str, number: int) -> RubricItem:
    """A version of an item. Raises NotFound."""
    table = tables.RubricItem
    query = select(table).where(table.item == item, table.number == number)
    found = session.scalar(query.where(table.assignment_id == assignment_id))
    if found is None:
        raise NotFound(NO_SUCH_ITEM)
    return _item(found)


def item_value(version: RubricItem) -> dict[str, Any]:
    """What a change that applies this version keeps of it."""
    return {"text": version.text, "points": version.points}


def add_item(
    session: Session,
    assignment: Assignment,
    criterion: Criterion,
    text: str,
    points: float | None,
    actor: Actor,
) -> RubricItem:
    """Add an item; where there is an equal one, that one is returned. Raises ItemRefused."""
    text, points = checked(criterion, text, points)
    lock_assignment(session, assignment)
    there = list_items(session, assignment.id, criterion.id)
    same = next((one for one in there if (one.text, one.points) == (text, points)), None)
    if same is not None:
        return same
    if len(there) >= MAX_ITEMS:
        raise ItemRefused(FULL(most=MAX_ITEMS))
    made = RubricItem(item=tables.new_id(), number=1, criterion=criterion.id, text=text, points=points)
    add_version(session, assignment.id, made, actor)
    return made


def add_version(
    session: Session, assignment_id: int, version: RubricItem, actor: Actor, bulk: str = ""
) -> None:
    """Store a version of an item: from now on it counts."""
    fields = version.model_dump()
    row = tables.RubricItem(
        **fields, assignment_id=assignment_id, bulk=bulk, by=actor.user_id, at=now(session)
    )
    session.add(row)
    session.flush()
    write_audit(session, actor.name, "item.save", f"assignment:{assignment_id}", fields)


def checked(criterion: Criterion, text: str, points: float | None) -> tuple[str, float]:
    """Text and points as they are stored. Raises ItemRefused."""
    text = text.replace("\0", "").replace("\r\n", "\n").strip()
    if not text or len(text) > MAX_CHARS:
        raise ItemRefused(TEXT_LENGTH(most=MAX_CHARS))
    if points is None or not math.isfinite(points) or abs(points) > criterion.points:
        raise ItemRefused(POINTS_RANGE(most=criterion.points))
    return text, round(points, 2)


def submissions_with(session: Session, assignment_id: int, criterion: str) -> Mapping[str, frozenset[str]]:
    """Item -> the submissions whose current grade has it."""
    last: dict[tuple[str, str], str] = {}
    for row in session.execute(_applied(assignment_id)):
        of, item = split_item_target(row.target)
        if of == criterion:
            last[item, row.submission_id] = row.kind
    found: defaultdict[str, set[str]] = defaultdict(set)
    for (item, submission_id), kind in last.items():
        if kind == "item":
            found[item].add(submission_id)
    return {item: frozenset(some) for item, some in found.items()}


def _applied(assignment_id: int) -> Any:
    return (
        select(Change.submission_id, Change.target, Change.kind)
        .join(Round, (Round.id == Change.round_id) & Round.current)
        .join(Submission, Submission.id == Change.submission_id)
        .where(Submission.assignment_id == assignment_id)
        .where(Change.kind.in_(ITEM), Change.undone_at.is_(None))
        .order_by(Change.id)
    )


def _item(row: tables.RubricItem) -> RubricItem:
    return RubricItem(
        item=row.item,
        number=row.number,
        criterion=row.criterion,
        text=row.text,
        points=row.points,
        active=row.active,
    )
