"""Exports of grades as CSV rows, of an assignment's files as zip entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.documents import zip_names
from grading.domain.report import Report
from grading.scoring import changed
from grading.scoring.plain_text_report import as_text
from grading.store import Store
from grading.store.assignments.versions import Criterion, criteria_of, newest_rubric
from grading.store.blobs import load_blobs
from grading.store.bulk import chunks
from grading.store.courses import courses
from grading.store.grades.final_score import list_changes
from grading.store.grades.gradebook_cells import Cell, Column, load_columns
from grading.store.tables import (
    Assignment,
    Grade,
    Identity,
    Round,
    Submission,
    SubmissionFile,
    User,
)
from grading.store.trust import release_records
from grading.store.views.gradebook import Row, iterate_rows
from grading.tabular.grades_csv import ADJUSTMENT, GUARANTEE, column_title

CHUNK_SIZE = 20
"""Submissions that are read together, to bound memory."""
README = """Everything of one assignment.

grades.csv   what counts of each student
submissions/ a folder for each student, in it one for each submission with its files and, once it was graded,
             report.md with the points and all that was written, changes by people put in
guarantee.txt  what was released unread, by which guarantee and which sample, where anything was
"""


def _deducts(session: Session, assignment_id: int) -> bool:
    """Whether its criteria's points may differ from the total."""
    rubric = newest_rubric(session, assignment_id)
    return bool(rubric.get("adjustments")) or rubric.get("bonus_at_most") is not None


# --- tables -------------------------------------------------------------------------------------------


def course_table(session: Session, course_id: int) -> tuple[list[str], Iterator[list[Any]]]:
    """Header and rows of a course: a column for each assignment."""
    course = courses.load_course(session, course_id)
    listed = load_columns(session, course_id)
    header = ["id", "name", *(one.title for one in listed), "total", "of", "dropped"]
    return header, (_course_line(row, listed) for row in iterate_rows(session, course, listed))


def _course_line(row: Row, listed: Sequence[Column]) -> list[Any]:
    dropped = ", ".join(listed[place].title for place in sorted(row.standing.dropped))
    points = [cell.points for cell in row.cells]
    total = [row.standing.points, row.standing.max_points, dropped]
    return [row.student.subject, row.student.name, *points, *total]


def assignment_table(
    session: Session, assignment: Assignment, *, criteria: bool
) -> tuple[list[str], Iterator[list[Any]]]:
    """Header and rows of one assignment; with `criteria`, the table can be edited and imported."""
    course = courses.load_course(session, assignment.course_id)
    listed = [one for one in load_columns(session, course.id) if one.id == assignment.id]
    shown = criteria_of(session, assignment.id) if criteria else ()
    header = ["id", "name", "state", "submission", "submitted_at", "points", "max", ADJUSTMENT, "credit"]
    header += ["final", "released", "reviewed", "held", *(column_title(one.id, one.title) for one in shown)]
    deducting = criteria and _deducts(session, assignment.id)
    header += ["deductions"] if deducting else []
    statements = release_records.load_statements(session, assignment.id)
    header += [GUARANTEE] if statements else []
    rows = _assignment_lines(session, iterate_rows(session, course, listed), shown, deducting, statements)
    return header, rows


def _assignment_lines(
    session: Session,
    rows: Iterator[Row],
    shown: Sequence[Criterion],
    deducting: bool,
    statements: Mapping[str, str],
) -> Iterator[list[Any]]:
    for some in _some(rows, 100):
        more = _more(session, [row.cells[0].submission_id for row in some if row.cells])
        for row in some:
            cell = row.cells[0] if row.cells else Cell()
            found = more.get(cell.submission_id)
            line = _assignment_line(row, cell, found, shown)
            line += [_deducted(found)] if deducting else []
            yield [*line, statements.get(cell.submission_id or "", "")] if statements else line


def _deducted(more: Any) -> float | None:
    """Difference between the criteria's points and the rubric's."""
    if more is None or more.criterion_points is None:
        return None
    judged = sum(points or 0.0 for points in more.criterion_points.values())
    return round(float(more.points_so_far) - judged, 2)


def _more(session: Session, ids: Sequence[str]) -> dict[str, Any]:
    query = (
        select(
            Submission.id, Submission.number, Submission.created_at, Grade.points, Grade.adjustment,
            Grade.points_so_far, Grade.reviewed_at, Grade.criterion_points,
        )
        .join(Round, (Round.submission_id == Submission.id) & Round.current)
        .outerjoin(Grade, Grade.round_id == Round.id)
        .where(Submission.id.in_([one for one in ids if one]))
    )  # fmt: skip
    return {row.id: row for row in session.execute(query)}


def _assignment_line(row: Row, cell: Cell, more: Any, shown: Sequence[Criterion]) -> list[Any]:
    head = [row.student.subject, row.student.name, cell.state]
    if more is None:
        return [*head, *[None] * (10 + len(shown))]
    graded = more.criterion_points is not None
    known = more.criterion_points or {}
    return [
        *head,
        more.number,
        more.created_at.isoformat(timespec="seconds"),
        more.points,
        cell.max_points if graded else None,
        more.adjustment,
        cell.credit if graded else None,
        cell.points,
        *([cell.released, more.reviewed_at is not None, cell.held] if graded else [None] * 3),
        *(known.get(one.id) for one in shown),
    ]


def _some(rows: Iterator[Row], size: int) -> Iterator[list[Row]]:
    found: list[Row] = []
    for row in rows:
        found.append(row)
        if len(found) == size:
            yield found
            found = []
    if found:
        yield found


# --- everything of an assignment ----------------------------------------------------------------------


def export_files(store: Store, assignment_id: int) -> Iterator[tuple[str, bytes]]:
    """Path and content of each file but the table; no transaction is open while one is sent.

    What is deleted meanwhile is left out. Raises FilesUnavailable and FileDamaged.
    """
    yield "README.txt", README.encode()
    names = zip_names.Names()
    with store.read() as session:
        assignment = session.get_one(Assignment, assignment_id)
        if said := release_records.record(session, assignment):
            yield "guarantee.txt", said.encode()
        query = select(Submission.id).join(Round, (Round.submission_id == Submission.id) & Round.current)
        query = query.where(Submission.assignment_id == assignment_id)
        ids = list(session.scalars(query.order_by(Submission.student_id, Submission.number)))
    for some in chunks(ids, CHUNK_SIZE):
        with store.read() as session:
            folders = _folders(session, some)
            for submission_id in some:
                if submission_id not in folders:
                    continue  # it was removed a moment ago
                for file in _of_submission(session, submission_id, folders[submission_id], names):
                    session.commit()
                    yield file


def _folders(session: Session, ids: Sequence[str]) -> dict[str, str]:
    """A unique folder of a submission: its student's name and id, and its number."""
    subject = (
        select(Identity.subject).where(Identity.user_id == User.id).order_by(Identity.id).limit(1)
    ).scalar_subquery()
    who = (User.id.label("user"), User.name, subject.label("subject"))
    query = select(Submission.id, Submission.number, *who)
    query = query.join(User, User.id == Submission.student_id).where(Submission.id.in_(ids))
    return {row.id: _folder(row) for row in session.execute(query)}


def _folder(row: Any) -> str:
    called = zip_names.part(f"{row.name} {row.subject or ''}", "student")
    return f"submissions/{called} ({row.user})/submission-{row.number}"


def _of_submission(
    session: Session, submission_id: str, folder: str, names: zip_names.Names
) -> Iterator[tuple[str, bytes]]:
    files = select(SubmissionFile.path, SubmissionFile.sha256).where(
        SubmissionFile.submission_id == submission_id
    )
    for path, sha256 in session.execute(files.order_by(SubmissionFile.path)).all():
        content = load_blobs(session, [sha256]).get(sha256)
        if content is not None:  # else it was removed while the file before was sent
            yield names.unique(f"{folder}/{zip_names.path(path)}"), content
    query = select(Grade).join(Round, Round.id == Grade.round_id)
    grade = session.scalar(query.where(Round.submission_id == submission_id, Round.current))
    if grade is not None:
        report = changed(Report.model_validate(grade.report), list_changes(session, grade.round_id))
        shown = grade.released_at is not None
        text = as_text(report, folder, released=shown, final_points=grade.final_points)
        yield names.unique(f"{folder}/report.md"), text.encode()
        session.expunge(grade)
