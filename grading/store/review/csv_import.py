"""CSV import of points: a plan for the preview, and its execution."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.domain.base_value import Value
from grading.domain.errors import Conflict
from grading.domain.messages import Message, define_message
from grading.domain.permissions import Actor
from grading.domain.report import Adjusted, CriterionGrade, Report
from grading.domain.report_changes import Change, Kind
from grading.scoring import changed
from grading.scoring.adjustments import added_up
from grading.scoring.final_score import counted
from grading.store import tables
from grading.store.assignments.versions import Criterion, criteria_of
from grading.store.audit import write_audit
from grading.store.bulk import chunks
from grading.store.grades.change_history import stamp
from grading.store.grades.final_score import list_changes
from grading.store.grades.gradebook_cells import load_cells, load_columns
from grading.store.review import edits
from grading.tabular.grades_csv import ADJUSTMENT, GradeTable, RequestedPoints

SAME_SUBMISSION = define_message(
    "grades_import.same_submission", "line %(line)s is about the same submission"
)
WORKED_OUT_COLUMN = define_message(
    "grades_import.worked_out_column", "'%(name)s' is calculated; change a criterion or 'adjustment'"
)
NO_STUDENT_OF_COURSE = define_message(
    "grades_import.no_student", "'%(name)s' is not a student in this course"
)
NO_GRADE = define_message("grades_import.no_grade", "'%(name)s' has no grade to change")
TOO_MUCH = define_message("grades_import.too_much", "%(points)s is too large for an adjustment")
NO_CRITERION = define_message(
    "grades_import.no_criterion", "the grade of '%(name)s' has no criterion '%(criterion)s'"
)
OUT_OF_RANGE = define_message(
    "grades_import.out_of_range", "%(points)s is not between 0 and the %(most)s of '%(title)s'"
)
MOST_PROBLEMS = 200
MOST_ADJUSTED = 10.0
"""Maximum adjustment, as a multiple of the highest points."""


class PlannedChange(Value):
    """One change that the table leads to."""

    submission_id: str
    round_id: str
    student: str
    subject: str
    kind: Kind
    target: str
    title: str
    before: float | None
    after: float
    """The value in the table."""
    points: float
    """The stored value: of an adjustment the part that a person adds."""


class Total(Value):
    """The score of a submission, now and with the changes; None while it is incomplete."""

    before: float | None
    after: float | None


class Plan(Value):
    """The changes that a table leads to."""

    changes: tuple[PlannedChange, ...]
    totals: Mapping[str, Total]
    """By submission, of those that change."""
    same: int
    """Number of cells that change nothing."""
    problems: tuple[tuple[int, Message], ...]
    ignored: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Digest of the plan, by which the execution makes sure that it is the previewed one."""
        changes = [one.model_dump(mode="json") for one in self.changes]
        return hashlib.sha256(json.dumps(changes, sort_keys=True).encode()).hexdigest()


class PlanChanged(Conflict):
    """Nothing was changed: someone changed these grades in the meantime. Check the preview again."""

    code = "plan_changed"
    default_message = define_message(
        "error.plan_changed",
        "Nothing was changed: someone changed these grades in the meantime. Check the preview again.",
    )


def plan_import(session: Session, assignment: tables.Assignment, table: GradeTable) -> Plan:
    """Plan the changes of a table to the submissions that count now."""
    users = _users(session, assignment.course_id, sorted({one.student for one in table.wishes}))
    listed = [one for one in load_columns(session, assignment.course_id) if one.id == assignment.id]
    ids = sorted({user for user, _ in users.values()})
    found: dict[int, str] = {}
    for some in chunks(ids, 100):
        cells = load_cells(session, listed, some, released_only=False)
        found |= {user: cell.submission_id for (_, user), cell in cells.items()}
    grades = _grades(session, [*found.values()])
    criteria = {one.id: one for one in criteria_of(session, assignment.id)}
    changes: list[PlannedChange] = []
    problems = list(table.problems)
    same = 0
    done: dict[tuple[str, str], int] = {}
    for wish in table.wishes:
        user, name = users.get(wish.student, (0, ""))
        grade = grades.get(found.get(user, ""))
        made = _planned(wish, user, name, grade, criteria)
        if isinstance(made, Message):
            problems.append((wish.line, made))
        elif (made.submission_id, made.target) in done:
            # of a group one submission counts for all
            earlier = done[made.submission_id, made.target]
            problems.append((wish.line, SAME_SUBMISSION(line=earlier)))
        else:
            done[made.submission_id, made.target] = wish.line
            same += made.before == made.after
            changes += [made] if made.before != made.after else []
    totals = _totals(session, changes, grades)
    for one in table.sums:
        submission = found.get(users.get(one.student, (0, ""))[0], "")
        if submission in grades and submission not in totals and _differs(one, grades[submission][0]):
            problems.append((one.line, WORKED_OUT_COLUMN(name=one.target)))
    distinct = {(line, said.message): (line, said) for line, said in problems}
    problems = [distinct[key] for key in sorted(distinct)][:MOST_PROBLEMS]
    return Plan(
        changes=tuple(changes), totals=totals, same=same, problems=tuple(problems), ignored=table.ignored
    )


def _totals(
    session: Session, changes: Sequence[PlannedChange], grades: Mapping[str, tuple[Any, float]]
) -> dict[str, Total]:
    totals = {}
    moved = dict.fromkeys(one.round_id for one in changes if one.kind == "points")
    summed = _summed(session, [*moved])
    for submission in dict.fromkeys(one.submission_id for one in changes):
        grade, mine = grades[submission][0], [one for one in changes if one.submission_id == submission]
        criteria = {
            **grade.criterion_points,
            **{one.target: one.after for one in mine if one.kind == "points"},
        }
        adjustment = next((one.after for one in mine if one.kind == "adjust"), grade.adjustment)
        whole = grade.points
        if grade.round_id in moved:
            whole = None if None in criteria.values() else summed[grade.round_id](criteria)
        after = None if whole is None else counted(whole, adjustment, grade.max_points, grade.credit)
        totals[submission] = Total(before=grade.final_points, after=after)
    return totals


def _summed(session: Session, rounds: Sequence[str]) -> dict[str, Callable[[Mapping[str, float]], float]]:
    """Round -> function from its criteria's points to the total, with deductions and bonus."""
    found: dict[str, Callable[[Mapping[str, float]], float]] = {}
    grade = tables.Grade
    for some in chunks(rounds):
        for row in session.execute(select(grade.round_id, grade.report).where(grade.round_id.in_(some))):
            report = Report.model_validate(row.report)
            if report.adjustments:
                report = changed(report, list_changes(session, row.round_id))
            # only what the sum needs is kept: reports of a class are large
            slim = [one.model_copy(update={"evidence": (), "quotes": ()}) for one in report.criteria]
            found[row.round_id] = partial(_sum_of, slim, report.adjustments, report.bonus_at_most)
    return found


def _sum_of(
    grades: Sequence[CriterionGrade],
    adjustments: Sequence[Adjusted],
    bonus_at_most: float | None,
    points: Mapping[str, float],
) -> float:
    judged = [one.model_copy(update={"points": points.get(one.criterion)}) for one in grades]
    return added_up(judged, adjustments, bonus_at_most)[1]


def _differs(requested: RequestedPoints, grade: Any) -> bool:
    now = grade.points if requested.target == "points" else grade.final_points
    return now is None or abs(requested.points - now) > 0.005


def apply_import(
    session: Session, assignment: tables.Assignment, table: GradeTable, digest: str, reason: str, actor: Actor
) -> tuple[str, int]:
    """Execute the previewed plan, each change with this reason; returns the id of all, and how many.

    Raises PlanChanged. Importing the same file again changes nothing. `bulk_changes.undo_bulk` undoes them.
    """
    made = plan_import(session, assignment, table)
    if made.changes and made.digest != digest:
        raise PlanChanged
    bulk = tables.new_id()
    for one in made.changes:
        wanted = Change(kind=one.kind, target=one.target, points=one.points, reason=reason)
        edits.change_grade(session, one.submission_id, wanted, stamp(session, one.round_id), actor, bulk)
    detail = {"changes": len(made.changes), "reason": reason, "bulk": bulk}
    write_audit(session, actor.name, "grades.import", f"assignment:{assignment.id}", detail)
    return bulk, len(made.changes)


def _users(session: Session, course_id: int, subjects: Sequence[str]) -> Mapping[str, tuple[int, str]]:
    """Student id -> user and name, of the students of the course."""
    found: dict[str, tuple[int, str]] = {}
    for some in chunks([one for one in subjects if one.isprintable()]):
        query = (
            select(tables.Identity.subject, tables.User.id, tables.User.name)
            .join(tables.User, tables.User.id == tables.Identity.user_id)
            .join(tables.Membership, tables.Membership.user_id == tables.User.id)
            .where(tables.Identity.subject.in_(some), tables.Membership.course_id == course_id)
            .where(tables.Membership.role == "student")
            .order_by(tables.Identity.provider != "local")
        )
        for subject, user, name in session.execute(query):
            found.setdefault(subject, (user, name))
    return found


def _grades(session: Session, submission_ids: Sequence[str]) -> dict[str, tuple[Any, float]]:
    """Submission -> its current grade without the report, and the person's adjustment of the total."""
    grade = tables.Grade
    found: dict[str, tuple[Any, float]] = {}
    for some in chunks([one for one in submission_ids if one]):
        query = select(
            grade.submission_id, grade.round_id, grade.max_points, grade.adjustment, grade.criterion_points,
            grade.points, grade.credit, grade.final_points,
        )  # fmt: skip
        query = query.join(tables.Round, tables.Round.id == grade.round_id).where(tables.Round.current)
        rows = session.execute(query.where(grade.submission_id.in_(some))).all()
        own = _own(session, [row.round_id for row in rows])
        found |= {row.submission_id: (row, own.get(row.round_id, 0.0)) for row in rows}
    return found


def _own(session: Session, rounds: Sequence[str]) -> dict[str, float]:
    change = tables.Change
    query = select(change.round_id, change.value).where(
        change.round_id.in_(rounds), change.kind == "adjust", change.target == edits.TOTAL,
        change.undone_at.is_(None),
    )  # fmt: skip
    return {
        row.round_id: row.value.get("points") or 0.0 for row in session.execute(query.order_by(change.id))
    }


def _planned(
    wish: RequestedPoints,
    user: int,
    name: str,
    known: tuple[Any, float] | None,
    criteria: Mapping[str, Criterion],
) -> PlannedChange | Message:
    """The planned change, or why it is impossible."""
    if not user:
        return NO_STUDENT_OF_COURSE(name=wish.student)
    if known is None:
        return NO_GRADE(name=wish.student)
    grade, own = known
    head = {
        "submission_id": grade.submission_id,
        "round_id": grade.round_id,
        "student": name,
        "subject": wish.student,
        "after": wish.points,
    }
    if wish.target == ADJUSTMENT:
        if abs(wish.points) > max(MOST_ADJUSTED * grade.max_points, 10):
            return TOO_MUCH(points=wish.points)
        points = round(wish.points - (grade.adjustment - own), 2)
        return PlannedChange(
            **head, kind="adjust", target=edits.TOTAL, title="", before=grade.adjustment, points=points
        )
    if wish.target not in (grade.criterion_points or {}):
        return NO_CRITERION(name=wish.student, criterion=wish.target)
    criterion = criteria[wish.target]
    if not 0 <= wish.points <= criterion.max_points:
        return OUT_OF_RANGE(points=wish.points, most=criterion.max_points, title=criterion.title)
    before = grade.criterion_points[wish.target]
    return PlannedChange(
        **head, kind="points", target=wish.target, title=criterion.title, before=before, points=wish.points
    )
