"""Changes of a group of answers: a level, points or a comment for all members at once, undone together.

Members are changed in transactions of at most `BATCH`, so that a large group holds up nobody. All changes
have one `bulk` id, which the form brings: a form that is sent twice changes nothing the second time, and
undoing that id undoes all of them. A member that somebody else graded since the group was shown is skipped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.domain.base_value import Value
from grading.domain.errors import NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.domain.report import CriterionGrade, Report
from grading.domain.report_changes import Change
from grading.domain.rubric import Criterion
from grading.scoring import settled
from grading.scoring.changes import at_level
from grading.similarity.groups import ALONE
from grading.store import tables
from grading.store.audit import write_audit
from grading.store.bulk import chunks
from grading.store.database import Store, now
from grading.store.grades import release
from grading.store.grades.final_score import to_change
from grading.store.review.answer_groups import is_separate
from grading.store.review.edits import NO_REASON, NOTHING_WRITTEN, POINTS_RANGE, ChangeRefused
from grading.store.tables import Answer, Assignment, Grade, Round, Submission

NO_SUCH_LEVEL = define_message("group_changes.no_such_level", "Choose one of the levels of this criterion.")
NO_SUCH_GROUP_CHANGE = define_message(
    "group_changes.no_such_group_change", "This change of a group does not exist."
)
BATCH = 50
"""Members changed in one transaction."""


class GroupChange(Value):
    """What all members of a group get: a level or points, and a comment."""

    level: int | None = None
    points: float | None = None
    """Instead of a level."""
    reason: str = Field(default="", max_length=2_000)
    """Of the points; without one, the words of the level."""
    comment: str = Field(default="", max_length=20_000)
    """Shown at the place of each member's answer."""


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
    made = _Made(criterion.id, key, _wanted(criterion, wanted), wanted.level, bulk, seen, actor)
    done: set[str] = set()
    for some in chunks(list(dict.fromkeys(submissions)), BATCH):
        with store.write() as session:
            done |= _change_batch(session, session.get_one(Assignment, assignment_id), some, made)
    return GroupResult(len(done), tuple(one for one in submissions if one not in done))


def undo_group(store: Store, assignment_id: int, bulk: str, actor: Actor) -> int:
    """Undo all changes of a bulk id; returns of how many submissions. Raises NotFound."""
    with store.read() as session:
        query = select(tables.Change.submission_id).join(tables.Submission).distinct()
        of_it = (tables.Change.bulk == bulk, tables.Change.bulk > "", tables.Change.kind != "adjust")
        ids = list(session.scalars(query.where(*of_it, tables.Submission.assignment_id == assignment_id)))
    if not ids:
        raise NotFound(NO_SUCH_GROUP_CHANGE)
    count = 0
    for some in chunks(sorted(ids), BATCH):
        with store.write() as session:
            count += _undo_batch(session, session.get_one(Assignment, assignment_id), some, bulk, actor)
    return count


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
    if not found:
        raise ChangeRefused(NOTHING_WRITTEN)
    return found


@dataclass(frozen=True)
class _Made:
    """A change that is made of all members of a group, as its form asks for it."""

    criterion: str
    key: str
    wanted: Sequence[Change]
    level: int | None
    bulk: str
    seen: int
    actor: Actor


def _change_batch(
    session: Session, assignment: Assignment, submissions: Sequence[str], one: _Made
) -> set[str]:
    """Change some members; returns the submissions that have the change now."""
    grades = _lock_current(session, assignment.id, submissions)
    made = _changes_of(session, [grade.round_id for grade in grades])
    places = _places(session, [grade.round_id for grade in grades], one)
    done = set()
    for grade in grades:
        earlier = made[grade.round_id]
        if any(change.bulk == one.bulk for change in earlier):
            done.add(grade.submission_id)
        elif grade.round_id in places and not _changed_since(earlier, one):
            rows = list(_rows(session, grade, places[grade.round_id], one))
            session.add_all(rows)
            if rows:
                _settle(session, grade, [*earlier, *rows])
                _tell(session, assignment, grade, one.bulk, one.actor, "change", rows)
                done.add(grade.submission_id)
    return done


def _undo_batch(
    session: Session, assignment: Assignment, submissions: Sequence[str], bulk: str, actor: Actor
) -> int:
    """Undo the changes of a bulk id in all gradings of these submissions."""
    change = tables.Change
    rounds = select(change.round_id).where(change.bulk == bulk, change.submission_id.in_(submissions))
    grades = _lock(session, list(session.scalars(rounds.distinct())))
    made = _changes_of(session, [grade.round_id for grade in grades])
    touched = set()
    for grade in grades:
        rows = [one for one in made[grade.round_id] if one.bulk == bulk and one.undone_at is None]
        for row in rows:
            row.undone_at, row.undone_by = now(session), actor.user_id
        if rows:
            _settle(session, grade, made[grade.round_id])
            _tell(session, assignment, grade, bulk, actor, "undo", rows)
            touched.add(grade.submission_id)
    return len(touched)


def _lock_current(session: Session, assignment_id: int, submissions: Sequence[str]) -> list[Grade]:
    """The grades of the current rounds, locked; of a submission that is being regraded there is none."""
    query = (
        select(Round.id)
        .join(Submission, Submission.id == Round.submission_id)
        .where(Round.submission_id.in_(submissions), Round.current, Submission.assignment_id == assignment_id)
        .order_by(Round.id)
    )
    # the rounds first, so that no other becomes current meanwhile
    return _lock(session, list(session.scalars(query.with_for_update(key_share=True, of=Round))))


def _lock(session: Session, rounds: Sequence[str]) -> list[Grade]:
    query = select(Grade).where(Grade.round_id.in_(rounds)).order_by(Grade.id)
    return list(session.scalars(query.with_for_update().execution_options(populate_existing=True)))


def _changes_of(session: Session, rounds: Sequence[str]) -> defaultdict[str, list[tables.Change]]:
    change = tables.Change
    found: defaultdict[str, list[tables.Change]] = defaultdict(list)
    for row in session.scalars(select(change).where(change.round_id.in_(rounds)).order_by(change.id)):
        found[row.round_id].append(row)
    return found


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
    for wanted in one.wanted:
        value = _value(found, regions, wanted, one.level)
        same = wanted.kind == "points" and value == now_there
        yield tables.Change(
            round_id=grade.round_id, submission_id=grade.submission_id,
            kind="confirm" if same else wanted.kind, target=wanted.target, value={} if same else value,
            before=now_there if wanted.kind == "points" else {},
            reason=wanted.reason, bulk=one.bulk, by=one.actor.user_id, at=now(session),
        )  # fmt: skip


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


def _settle(session: Session, grade: Grade, changes: Sequence[tables.Change]) -> None:
    """Store what a grade comes to with these changes; equal to `update_final_score`, without its queries."""
    session.flush()
    counting = [to_change(row, "") for row in changes if row.undone_at is None]
    made = settled(Report.model_validate(grade.report), counting, grade.credit)
    grade.points, grade.points_so_far = made.points, made.report.points_so_far
    grade.adjustment, grade.final_points = made.adjustment, made.final_points
    grade.criterion_points = {one.criterion: one.points for one in made.report.criteria}


def _tell(
    session: Session,
    assignment: Assignment,
    grade: Grade,
    bulk: str,
    actor: Actor,
    what: str,
    rows: Sequence[tables.Change],
) -> None:
    """Write the audit, and an event for everybody who has seen the grade."""
    for row in rows:
        detail: dict[str, Any] = {"bulk": bulk, "kind": row.kind, "target": row.target}
        detail["final_points"] = grade.final_points
        if what == "change":
            detail |= {"from": row.before, "to": row.value, "reason": row.reason}
        about = f"submission:{grade.submission_id}"
        write_audit(session, actor.name, f"grade.{what}", about, detail, course_id=assignment.course_id)
    if grade.released_at is not None and any(row.kind != "confirm" for row in rows):
        key = f"changed:{grade.round_id}:{bulk[:12]}:{what}"
        release.add_event(session, grade, "grade.changed", key)
