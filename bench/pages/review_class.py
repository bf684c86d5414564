"""A class to review: an assignment with programs, two criteria, and the level that each should get.

The levels that a model proposes are right for programs that are correct, and too high for those that are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import delete
from sqlalchemy.orm import Session

from bench.pages.dataset import COURSE, WORDS
from bench.pages.school import School
from grading.documents import UploadedFile, read
from grading.documents.limits import Limits
from grading.domain.evidence import CheckOutcome
from grading.domain.jobs import Judgement, Provenance
from grading.domain.report import CriterionGrade, Report
from grading.domain.round_states import RoundState
from grading.domain.rubric import Criterion, Rubric
from grading.domain.stages import AnalysisOutput
from grading.scoring.changes import at_level
from grading.store import Store, tables
from grading.store.assignments import versions
from grading.store.assignments.versions import NewVersion
from grading.store.database import now
from grading.store.submissions import intake
from grading.store.submissions.intake import IncomingSubmission

CRITERIA = ("result", "clarity")
RUBRIC = Rubric(
    criteria=tuple(Criterion(id=one, title=one.capitalize(), points=10, stage="analysis") for one in CRITERIA)
)
PROPOSED = 3
RIGHT, WRONG = 4, 1
Levels = Mapping[str, Mapping[str, int]]
"""Student's name -> criterion -> the level that their program should get."""


@dataclass(frozen=True)
class Program:
    """A program, and whether it is correct."""

    source: str
    correct: bool


def read_programs(folder: Path | None, count: int) -> tuple[Program, ...]:
    """The programs in the folders `correct` and `wrong`; without a folder some that are made, in 40 forms."""
    if folder is None:
        return tuple(_made(number) for number in range(count))
    found = [
        Program(path.read_text(), correct)
        for name, correct in (("correct", True), ("wrong", False))
        for path in sorted((folder / name).glob("*.py"))
    ]
    return tuple(found[:count])


def add_class(store: Store, school: School, programs: Sequence[Program]) -> tuple[int, Levels]:
    """Add the assignment, each program by another student; its id and what each program should get."""
    levels = {}
    with store.write() as session:
        new = NewVersion("question", "Question", "python", "after_review", "question", RUBRIC)
        assignment_id = versions.import_version(session, COURSE, new)[0].id
        for student, program in zip(school.students, programs, strict=False):
            content = read([UploadedFile("program.py", program.source.encode())], Limits())
            incoming = IncomingSubmission(assignment_id, student, "form", content)
            _finish(session, intake.accept_submission(session, incoming).submission_id, program)
            name = session.get_one(tables.User, student).name
            levels[name] = {"result": RIGHT if program.correct else WRONG, "clarity": PROPOSED}
        session.execute(delete(tables.Outbox))
    return assignment_id, levels


def add_answers(store: Store, assignment_id: int) -> None:
    """Add the answers of all programs, as preparing a round does; pages of before groups know none."""
    from grading.documents import set_apart
    from grading.domain.document import Document
    from grading.domain.evidence import CriterionEvidence, Evidence
    from workers.server.answers import answer_rows

    with store.write() as session:
        query = session.query(tables.Submission, tables.Round.id, tables.Grade.report)
        query = query.join(tables.Round, tables.Round.submission_id == tables.Submission.id)
        query = query.join(tables.Grade, tables.Grade.round_id == tables.Round.id)
        for work, round_id, report in query.filter(tables.Submission.assignment_id == assignment_id):
            own = set_apart([Document.model_validate(one) for one in work.documents])
            checked = report["criteria"][0]["evidence"][0]["earned"]
            evidence = Evidence(criteria=(CriterionEvidence(criterion="result", share=checked),))
            of_it = {"round_id": round_id, "submission_id": work.id, "assignment_id": assignment_id}
            session.add_all(tables.Answer(**row, **of_it) for row in answer_rows(own, RUBRIC, (), evidence))


def _made(number: int) -> Program:
    form, name = number % 40, f"value_{number}"
    source = f"def search(key, items):\n    {name} = {form}\n    return {name} + len(items)\n"
    return Program(source, form % 2 == 0)


def _finish(session: Session, submission_id: str, program: Program) -> None:
    round_ = session.query(tables.Round).filter_by(submission_id=submission_id).one()
    moment, whole = now(session), _report(program)
    round_.state, round_.prepared_at = RoundState.GRADED.value, moment
    round_.dispatched_at = round_.finished_at = moment
    for stage in round_.stages:
        stage.state = "done"
    session.add(
        tables.Grade(
            round_id=round_.id, submission_id=submission_id, points=whole.points,
            points_so_far=whole.points_so_far, final_points=whole.points, max_points=whole.max_points,
            report=whole.model_dump(mode="json"), created_at=moment,
        )
    )  # fmt: skip


def _report(program: Program) -> Report:
    criteria = tuple(_criteria(program))
    points = sum(one.points or 0.0 for one in criteria)
    judgements = tuple(
        Judgement(criterion=one.criterion, level=int(one.level or 0), reason=one.reason) for one in criteria
    )
    origin = Provenance(machine="dgx-spark-1", engine="ollama", model="qwen3-coder:30b", seconds=11.2)
    return Report(
        status=RoundState.GRADED, criteria=criteria, points=points, points_so_far=points, max_points=20,
        analysis=AnalysisOutput(judgements=judgements, summary=WORDS), stages={"analysis": origin},
    )  # fmt: skip


def _criteria(program: Program) -> Iterator[CriterionGrade]:
    check = CheckOutcome(check="tests", label="passes the tests", earned=program.correct)
    for name, level in zip(CRITERIA, (RIGHT if program.correct else PROPOSED, PROPOSED), strict=True):
        values: dict[str, Any] = {"criterion": name, "title": name.capitalize(), "stage": "analysis"}
        grade = CriterionGrade(
            **values, points=0, max_points=10, level=level, highest=4, basis="model", reason=WORDS,
            evidence=(check,) if name == "result" else (),
        )  # fmt: skip
        yield grade.model_copy(update={"points": at_level(grade, level)})
