"""Values and rows for tests, made in one place."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from grading.checks.kinds.prose import Words
from grading.documents import SubmittedFiles, UploadedFile
from grading.domain.document import Cell, Document
from grading.domain.jobs import Provenance, Result
from grading.domain.rubric import Criterion, Rubric
from grading.store import Store
from grading.store.accounts import users
from grading.store.assignments import versions
from grading.store.assignments.versions import NewVersion
from grading.store.rounds import lifecycle
from grading.store.rounds.lifecycle import RunOrder
from grading.store.submissions import intake
from grading.store.submissions.intake import Accepted, IncomingSubmission

COURSE = "business-analytics"

RUBRIC = Rubric(
    criteria=(
        Criterion(id="code", title="Code", points=60, checks=(Words(at_least=1),)),
        Criterion(id="reflection", title="Reflection", points=40, stage="feedback"),
    )
)


def document(source: str = "x <- 1", path: str = "work.R") -> Document:
    """A script that is all the student's own."""
    lines = tuple(range(1, source.count("\n") + 2))
    language = "python" if path.endswith(".py") else "r"
    cell = Cell(number=1, kind="code", source=source, language=language, added=lines)
    return Document(path=path, kind="script", language=language, cells=(cell,))


def submitted_files(source: str = "x <- 1", path: str = "work.R") -> SubmittedFiles:
    """What reading one script gives."""
    return SubmittedFiles(
        files=(UploadedFile(path, source.encode()),), documents=(document(source, path),), notes=()
    )


def add_assignment(
    store: Store, slug: str = "sales", release: str = "after_review", rubric: Rubric = RUBRIC
) -> int:
    """An assignment with RUBRIC, or one with its criteria; returns its id."""
    new = NewVersion(slug, slug.capitalize(), "r", release, digest=f"{slug}-1", rubric=rubric)
    with store.write() as session:
        assignment, _, _ = versions.import_version(session, COURSE, new)
        return assignment.id


def add_student(store: Store, student: str = "s1") -> int:
    """An enrolled student; returns the user's id."""
    with store.write() as session:
        course = versions.find_or_create_course(session, COURSE)
        return users.find_or_create_student(session, "local", student, "", "", course.id).id


def submit(store: Store, assignment_id: int, student: str = "s1", **other: Any) -> Accepted:
    """A stored submission."""
    student_id = add_student(store, student)
    work = submitted_files(other.pop("source_text", "x <- 1"), other.pop("path", "work.R"))
    with store.write() as session:
        return intake.accept_submission(
            session, IncomingSubmission(assignment_id, student_id, "api", work, **other)
        )


def result(run_id: str, round_id: str, stage: str, *, ok: bool = True, **other: Any) -> Result:
    """A machine's answer with the middle level for every criterion of RUBRIC."""
    judged = [{"criterion": c.id, "level": 2} for c in RUBRIC.of_stage(stage)]
    output: dict[str, Any] = {"judgements": judged} if ok else {}
    if ok and stage == "feedback":
        output |= {"achieved": "a", "reflection": "r", "practice": "p", "next_step": "n"}
    provenance = Provenance(machine="dgx-spark-1", engine="instant", model="m", uses_model=False)
    values = {"error": None if ok else "engine_failed", "output": output, **other}
    return Result(run_id=run_id, round_id=round_id, stage=stage, ok=ok, provenance=provenance, **values)


def begin_round(session: Session, round_id: str) -> list[RunOrder]:
    """Dispatch all stages of a queued round, in SQL only. Empty when it is not queued."""
    orders = [order for group in lifecycle.first_orders(session, [round_id]) for order in group]
    lifecycle.mark_dispatched(session, orders)
    return orders


def begin_stage(session: Session, round_id: str, stage: str) -> RunOrder | None:
    """Dispatch one failed stage again, in SQL only. None when it does not wait for that."""
    order = lifecycle.next_order(session, round_id, stage)
    lifecycle.mark_dispatched(session, [order] if order else [])
    return order
