"""Curves over a class: preview, one change of each grade, undone together."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import func, insert, select, update
from sqlalchemy.orm import Session, defer

from grading.domain.base_value import Value
from grading.domain.errors import Conflict, GraderError, NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.domain.rubric import Rubric
from grading.scoring.curves import Curve, Moved, Standing, distribution, moved
from grading.scoring.final_score import counted
from grading.store.assignments import versions
from grading.store.audit import write_audit
from grading.store.bulk import chunks
from grading.store.change_tracking import TRACKED_MANUALLY
from grading.store.database import now
from grading.store.grades import release
from grading.store.grades.final_score import counting_of_assignment
from grading.store.tables import Assignment, Change, Grade, Round, Submission, User, new_id

NO_REASON = define_message("curves.no_reason", "Enter a reason. Students see it next to their points.")
NO_SUCH_CURVE = define_message("curves.no_such_curve", "This curve does not exist.")
NO_SUCH_CRITERION = define_message("curves.no_such_criterion", "This criterion is not in the rubric.")
IS_CURVE = (Change.kind == "adjust") & (Change.target == Change.bulk)
"""Whether a change is that of a curve; an import changes adjustments, too, with another target."""


class CurveRefused(GraderError):
    """This curve cannot be applied."""

    code = "curve_refused"
    status = 422
    default_message = define_message("error.curve_refused", "This curve cannot be applied.")


class MovedMeanwhile(Conflict):
    """Nothing was saved: grades changed after the preview."""

    code = "moved_meanwhile"
    default_message = define_message(
        "error.moved_meanwhile",
        "Nothing was saved: grades changed after the preview. Check the new "
        "preview, then apply the curve again.",
    )


class Row(Value):
    """One grade of a preview; before and after are final points."""

    submission_id: str
    student: str
    number: int
    before: float
    after: float
    delta: float
    released: bool
    held: bool


class Preview(Value):
    """The effect of a curve."""

    rows: tuple[Row, ...]
    moved: int
    highest: float
    before: tuple[int, ...]
    after: tuple[int, ...]
    """Number of grades in each tenth of the highest points."""
    incomplete: int
    """Submissions without a total, which are not curved."""
    seen: str
    """Digest of the present grades, by which `apply_curve` detects changes."""


class AppliedCurve(Value):
    """A curve that was applied."""

    id: str
    at: datetime
    by: str
    reason: str
    count: int
    undone_at: datetime | None


def preview_curve(
    session: Session, assignment: Assignment, curve: Curve, everything: bool = False
) -> Preview:
    """The effect of a curve on the submissions that count, or on all. Raises CurveRefused."""
    found, names = _found(session, assignment, everything), {}
    whole = [grade for grade in found if grade.points is not None]
    result = _moved(session, assignment, curve, whole)
    ids = [grade.submission_id for grade in whole]
    for some in chunks(ids):
        query = select(Submission.id, Submission.number, User.name)
        query = query.join(User, User.id == Submission.student_id).where(Submission.id.in_(some))
        names.update({row.id: row for row in session.execute(query)})
    rows = [_row(grade, one, names[grade.submission_id]) for grade, one in zip(whole, result, strict=True)]
    highest = max((grade.max_points for grade in whole), default=0.0)
    return Preview(
        rows=tuple(sorted(rows, key=lambda row: (row.student.lower(), row.submission_id))),
        moved=sum(row.delta != 0 for row in rows),
        highest=highest,
        before=tuple(distribution((row.before for row in rows), highest)),
        after=tuple(distribution((row.after for row in rows), highest)),
        incomplete=len(found) - len(whole),
        seen=_seen(whole),
    )


def apply_curve(
    session: Session,
    assignment: Assignment,
    curve: Curve,
    actor: Actor,
    *,
    seen: str,
    reason: str,
    everything: bool = False,
) -> tuple[str, int]:
    """Apply a previewed curve; returns its id and how many grades changed.

    Raises CurveRefused, and MovedMeanwhile when the grades are not those of the preview any more.
    """
    if not reason.strip():
        raise CurveRefused(NO_REASON)
    found = _found(session, assignment, everything, lock=True)
    whole = [grade for grade in found if grade.points is not None]
    if _seen(whole) != seen:
        raise MovedMeanwhile
    result = _moved(session, assignment, curve, whole)
    bulk, moment, rows = new_id(), now(session), []
    for grade, one in zip(whole, result, strict=True):
        if one.delta:
            change = {"kind": "adjust", "target": bulk, "bulk": bulk, "reason": reason, "at": moment}
            change |= {"round_id": grade.round_id, "submission_id": grade.submission_id, "by": actor.user_id}
            rows.append({**change, "value": {"points": one.delta}, "before": {"points": grade.adjustment}})
            _set(session, assignment, grade, round(grade.adjustment + one.delta, 2), bulk, actor, "change")
    if rows:
        session.execute(insert(Change), rows, execution_options=TRACKED_MANUALLY)  # their grades are touched
    detail = {"bulk": bulk, "curve": curve.model_dump(), "count": len(rows), "reason": reason}
    write_audit(session, actor.name, "grade.adjust_all", f"assignment:{assignment.id}", detail)
    return bulk, len(rows)


def list_applied_curves(session: Session, assignment_id: int) -> tuple[AppliedCurve, ...]:
    """Curves applied to an assignment, the newest first."""
    query = (
        select(
            Change.bulk.label("id"),
            func.min(Change.at).label("at"),
            func.max(User.name).label("by"),
            func.max(Change.reason).label("reason"),
            func.count().label("count"),
            func.max(Change.undone_at).label("undone_at"),
        )
        .join(Submission, Submission.id == Change.submission_id)
        .outerjoin(User, User.id == Change.by)
        .where(Submission.assignment_id == assignment_id, Change.bulk > "", IS_CURVE)
        .group_by(Change.bulk)
        .order_by(func.min(Change.at).desc(), Change.bulk)
    )
    return tuple(
        AppliedCurve.model_validate({**row._mapping, "by": row.by or ""}) for row in session.execute(query)
    )


def undo_curve(session: Session, assignment: Assignment, bulk: str, actor: Actor) -> int:
    """Undo a curve for all its grades; returns how many. Raises NotFound."""
    of_it = select(Change.round_id).join(Submission, Submission.id == Change.submission_id)
    mine = (Change.bulk == bulk, Change.bulk > "", IS_CURVE)
    of_it = of_it.where(Submission.assignment_id == assignment.id, *mine)
    # grades first, in one order: whoever changes one holds it, too
    theirs = select(Grade).where(Grade.round_id.in_(of_it)).order_by(Grade.id).options(defer(Grade.report))
    locked = session.scalars(theirs.with_for_update()).all()
    # now that they are locked: the changes may have gone on to another grading while this waited
    locked = session.scalars(theirs.with_for_update().execution_options(populate_existing=True)).all()
    if not locked:
        raise NotFound(NO_SUCH_CURVE)
    open_still = (Change.bulk == bulk, Change.undone_at.is_(None))
    undone = update(Change).where(*open_still).values(undone_at=now(session), undone_by=actor.user_id)
    touched = set(session.scalars(undone.returning(Change.round_id)))
    sums = _adjustments(session, [grade.round_id for grade in locked])
    for grade in locked:
        if grade.round_id in touched:
            _set(session, assignment, grade, sums.get(grade.round_id, 0.0), bulk, actor, "undo")
    detail = {"bulk": bulk, "count": len(touched)}
    write_audit(session, actor.name, "grade.adjust_undo", f"assignment:{assignment.id}", detail)
    return len(touched)


def load_criteria(session: Session, assignment: Assignment) -> Rubric:
    """The published rubric. Raises NotFound."""
    return Rubric.model_validate(versions.published_version(session, assignment).rubric)


def _found(session: Session, assignment: Assignment, everything: bool, lock: bool = False) -> Sequence[Grade]:
    query = (
        select(Grade)
        .join(Round, (Round.id == Grade.round_id) & Round.current)
        .join(Submission, Submission.id == Round.submission_id)
        .where(Submission.assignment_id == assignment.id)
        .order_by(Grade.id)
        .options(defer(Grade.report))
    )
    if not everything:
        query = query.where(Submission.id.in_(counting_of_assignment(assignment)))
    if lock:
        locked = set(session.scalars(query.with_for_update(of=Grade)))
        # now that they are locked: another grading may have taken a place while this waited
        if locked != set(session.scalars(query)):
            raise MovedMeanwhile
    return session.scalars(query).all()


def _moved(session: Session, assignment: Assignment, curve: Curve, whole: Sequence[Grade]) -> list[Moved]:
    highest = max((grade.max_points for grade in whole), default=0.0)
    if curve.criterion:
        rubric = load_criteria(session, assignment)
        found = next((one for one in rubric.criteria if one.id == curve.criterion), None)
        if found is None:
            raise CurveRefused(NO_SUCH_CRITERION)
        highest = found.points
    return moved(curve, [_standing(grade) for grade in whole], highest)


def _standing(grade: Grade) -> Standing:
    return Standing(
        points=grade.points or 0.0,
        max_points=grade.max_points,
        adjustment=grade.adjustment,
        credit=grade.credit,
        by_criterion=grade.criterion_points,
    )


def _row(grade: Grade, one: Moved, name: Any) -> Row:
    return Row(
        submission_id=grade.submission_id, student=name.name, number=name.number,
        before=one.before, after=one.after, delta=one.delta,
        released=grade.released_at is not None, held=grade.held,
    )  # fmt: skip


def _set(
    session: Session,
    assignment: Assignment,
    grade: Grade,
    adjustment: float,
    bulk: str,
    actor: Actor,
    what: str,
) -> None:
    """Set a grade's adjustment; equal to `update_final_score`, without reading the report."""
    was, grade.adjustment = grade.final_points, adjustment
    if grade.points is not None:
        grade.final_points = counted(grade.points, adjustment, grade.max_points, grade.credit)
    detail = {"bulk": bulk, "from": was, "to": grade.final_points}
    about = f"submission:{grade.submission_id}"
    write_audit(session, actor.name, f"grade.{what}", about, detail, course_id=assignment.course_id)
    if grade.released_at is not None:
        release.add_event(session, grade, "grade.changed", f"changed:{grade.round_id}:{bulk[:12]}:{what}")


def _adjustments(session: Session, rounds: Sequence[str]) -> Mapping[str, float]:
    """The sum of the adjustments of each round; of one target the last one counts."""
    last: dict[str, dict[str, float]] = defaultdict(dict)
    for some in chunks(rounds):
        query = select(Change.round_id, Change.target, Change.value).order_by(Change.id)
        query = query.where(Change.round_id.in_(some), Change.kind == "adjust", Change.undone_at.is_(None))
        for row in session.execute(query):
            last[row.round_id][row.target] = float(row.value.get("points") or 0.0)
    return {round_id: round(sum(of.values()), 2) for round_id, of in last.items()}


def _seen(whole: Iterable[Grade]) -> str:
    lines = [
        f"{grade.round_id}:{grade.points}:{grade.adjustment}:{grade.credit}:{sorted(grade.criterion_points.items())}"
        for grade in whole
    ]
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:32]
