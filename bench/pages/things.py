"""What people add to gradings, and what the arguments of addresses may be called."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from bench.pages.school import CRITERIA, School
from grading.store import Store, tables
from grading.store.accounts import users
from grading.store.database import now


def more(store: Store, school: School, count: int) -> None:
    """What people add to gradings, so many of each, about hand-ins of the first assignment."""
    with store.write() as session:
        moment = now(session)
        version = session.scalar(
            select(tables.RubricVersion.id).where(tables.RubricVersion.assignment_id == school.assignments[0])
        )
        for number, row in enumerate(_about(session, school, count)):
            dry = tables.DryRun(
                assignment_id=school.assignments[0], rubric_version_id=version,
                by=school.staff["teacher"], created_at=moment,
            )  # fmt: skip
            session.add(dry)
            session.flush()
            session.add_all([*_of_staff(school, number, row, dry.id, moment), *_of_lms(number, row, moment)])
            for owner in (school.staff["teacher"], school.students[0]):
                users.create_token(session, owner, f"t{number}", ("read",), timedelta(days=1))
            if number < len(school.students):
                session.add(_extension(school, school.students[number], moment))


def _about(session: Session, school: School, count: int) -> Sequence[Any]:
    """(id, student_id, round) of the first hand-ins of the first assignment."""
    query = select(tables.Submission.id, tables.Submission.student_id, tables.Round.id.label("round"))
    query = query.join(tables.Round, tables.Round.submission_id == tables.Submission.id)
    mine = query.where(tables.Submission.assignment_id == school.assignments[0])
    return session.execute(mine.order_by(tables.Submission.id).limit(count)).all()


def _of_staff(school: School, number: int, row: Any, dry_run_id: str, moment: datetime) -> list[object]:
    """What the teacher adds to a hand-in, and what its student asks."""
    by = school.staff["teacher"]
    of_it = {"round_id": row.round, "submission_id": row.id, "by": by, "at": moment}
    return [
        tables.Change(kind="adjust", target="total", value={"points": 1}, before={}, reason="r", **of_it),
        tables.Mark(criterion=f"c{number % CRITERIA}", level=2, **of_it),
        tables.Example(
            assignment_id=school.assignments[0], submission_id=row.id, criterion="c0", excerpt="x",
            level=2, by=by, at=moment,
        ),
        tables.RegradeRequest(
            submission_id=row.id, round_id=row.round, student_id=row.student_id,
            course_id=school.course, reason="please", created_at=moment,
        ),
        tables.SavedComment(course_id=school.course, text=f"{number}", by=by, at=moment),
        tables.DryRunRound(dry_run_id=dry_run_id, submission_id=row.id, round_id=row.round),
    ]  # fmt: skip


def _of_lms(number: int, row: Any, moment: datetime) -> list[object]:
    """What was sent of a hand-in, again and again, and refused."""
    return [
        tables.Outbox(
            kind="to:lms", key=f"k{number}", payload={"submission": row.id}, created_at=moment,
            not_before=moment, done_at=moment, error="answered 500", tries=9,
        ),
        tables.SentMessage(
            receiver="lms", message_id=f"m{number}", event=f"k{number}", type="grade.released",
            submission_id=row.id, attempt=9, at=moment, seconds=0.1, url="https://lms.example/",
            headers={}, body="{}", status=500, error="answered 500", answer="no",
        ),
    ]  # fmt: skip


def _extension(school: School, student: int, moment: datetime) -> tables.Extension:
    by = school.staff["teacher"]
    return tables.Extension(
        assignment_id=school.assignments[0], student_id=student, by=by, at=moment,
        due_at=moment + timedelta(days=1),
    )  # fmt: skip


def things(session: Session, school: School) -> dict[str, object]:
    """What each argument of an address may be called, of those that there are."""
    first = school.assignments[0]
    query = select(tables.Submission.id, tables.Round.id, tables.Run.id)
    query = query.join(tables.Round, tables.Round.submission_id == tables.Submission.id)
    query = query.outerjoin(tables.Run, tables.Run.round_id == tables.Round.id)
    theirs = (tables.Submission.assignment_id == first, tables.Submission.student_id == school.students[0])
    row = session.execute(query.where(*theirs).order_by(tables.Submission.id).limit(1)).one()
    submission, round_, run = row
    found: dict[str, object] = {
        "course_id": school.course, "assignment_id": first, "submission_id": submission, "id": submission,
        "round_id": round_, "run_id": run or "0", "user_id": school.students[0], "filename": "x",
        "student_id": school.students[0], "connection": "canvas", "number": 1, "language": "en",
        "version_number": 1, "path": "work.py", "file_path": "work.py", "secret": "x",
        "draft_id": "0" * 32, "upload_id": "0" * 32,
        "batch_id": "0" * 32, "document": 0, "cell": 1, "machine": "dgx-spark-1",
        "platform_id": 1, "context_id": 1, "secret_id": 1, "launch_id": "0" * 32, "ticket": "x",
        "receiver": "lms", "kind": "submission.created",
    }  # fmt: skip
    kinds: dict[str, Any] = {
        "version_id": tables.RubricVersion, "change_id": tables.Change, "mark_id": tables.Mark,
        "example_id": tables.Example, "request_id": tables.RegradeRequest, "dry_run_id": tables.DryRun,
        "comment_id": tables.SavedComment, "token_id": tables.Token,
        "delivery_id": tables.SentMessage,
    }  # fmt: skip
    for name, table in kinds.items():
        known = session.scalar(select(table.id).order_by(table.id).limit(1))
        if known is not None:
            found[name] = known
    return found
