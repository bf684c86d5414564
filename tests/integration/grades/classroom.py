"""A class that submitted: reports that differ, with what people and machines did to them, all by one seed."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

from grading.domain.document import Location
from grading.domain.evidence import CheckOutcome, TestOutcome
from grading.domain.jobs import Finding, Judgement
from grading.domain.report import CriterionGrade, Report
from grading.domain.round_states import RoundState
from grading.domain.stages import AnalysisOutput
from grading.store import tables
from grading.store.accounts import users
from grading.store.database import now
from tests.integration.webapp import School, report

FINDINGS = (
    ("major", "Missing values are not handled"),
    ("major", "No handling of missing values"),
    ("minor", "The plot has no axis labels"),
    ("minor", "Axis labels missing in the plot"),
    ("minor", "Variable names are hard to read"),
    ("praise", "Clear steps from data to answer"),
    ("praise", "Good use of pandas"),
)
TITLES = {"load": "Loads the data", "think": "Thinks about it"}


def criterion(name: str, stage: str, most: float, level: float, **more: Any) -> CriterionGrade:
    """A criterion at a level of four."""
    values = {
        "criterion": name, "title": TITLES[name], "stage": stage, "points": round(most * level / 4, 2),
        "max_points": most, "level": level, "highest": 4, "basis": "checks and model", "reason": "So it is.",
    }  # fmt: skip
    return CriterionGrade.model_validate({**values, **more})


def a_report(load: float, think: float, found: tuple[int, ...] = (), cell: int = 3, **more: Any) -> Report:
    """A whole report with these levels and findings."""
    tests = tuple(TestOutcome(name=f"row {n}", passed=load >= n, hidden=n == 4) for n in (2, 4))
    checks = (
        CheckOutcome(check="1", label="reads a file", earned=min(load / 2, 1.0)),
        CheckOutcome(check="2", label="passes tests", earned=load / 4, tests=tests),
    )
    here = Location(document="work.ipynb", cell=cell)
    findings = tuple(
        Finding(severity=FINDINGS[n][0], title=FINDINGS[n][1], detail="Look there.", location=here)  # type: ignore[arg-type]
        for n in found
    )
    criteria = (
        criterion("load", "analysis", 4, load, evidence=checks),
        criterion("think", "feedback", 6, think),
    )
    points = round(load + 1.5 * think, 2)
    analysis = AnalysisOutput(judgements=(Judgement(criterion="load", level=3),), findings=findings)
    values = {"criteria": criteria, "points": points, "points_so_far": points, "analysis": analysis}
    return report(**{**values, **more})


def round_of(school: School, submission: str) -> str:
    """The current round of a submission."""
    with school.store.read() as session:
        return session.query(tables.Round).filter_by(submission_id=submission, current=True).one().id


def change(
    school: School, submission: str, criterion: str, points: float, reason: str = "Looked again."
) -> int:
    """A person changes the points of a criterion; the number of the change."""
    with school.store.write() as session:
        round_ = session.query(tables.Round).filter_by(submission_id=submission, current=True).one()
        made = tables.Change(
            round_id=round_.id, submission_id=submission, kind="points", target=criterion,
            value={"points": points}, before={}, reason=reason, by=school.users["teacher"], at=now(session),
        )  # fmt: skip
        session.add(made)
        session.flush()
        return made.id


def mark(
    school: School, submission: str, criterion: str, level: float, who: str = "grader", *, blind: bool = True
) -> None:
    """A person marks a criterion."""
    with school.store.write() as session:
        round_ = session.query(tables.Round).filter_by(submission_id=submission, current=True).one()
        session.add(
            tables.Mark(
                round_id=round_.id, submission_id=submission, criterion=criterion, level=level, blind=blind,
                by=school.users[who], at=now(session),
            )
        )  # fmt: skip


def student(school: School, name: str) -> None:
    """Somebody new in the course."""
    with school.store.write() as session:
        user = users.create_user(session, name, name=name.capitalize())
        school.users[name] = user.id
        users.enrol(session, user.id, school.course, "student")


def whole_class(school: School, size: int = 40, seed: int = 7) -> list[str]:
    """So many students with a graded submission each, one of them partly graded; the submissions' ids."""
    chance = random.Random(seed)
    made = []
    for n in range(size):
        student(school, f"student{n:03}")
        submission = school.submit(f"student{n:03}")
        level = chance.choice((1, 2, 2.5, 3, 3.5, 4, 4))
        think = min(4, max(0, level + chance.choice((-1, -0.5, 0, 0, 0.5))))
        found = tuple(sorted(chance.sample(range(len(FINDINGS)), 3)))
        state = {} if n != 1 else {"status": RoundState.PARTIAL, "points": None}
        school.grade(submission, a_report(level, think, found, chance.choice((2, 3, 3)), **state))
        _timed(school, submission, chance)
        if n % 3 == 0:
            mark(school, submission, "think", min(4, max(0, think + chance.choice((-1, 0, 0, 0.5)))))
        if n % 6 == 0:
            mark(school, submission, "think", min(4, max(0, think + chance.choice((-1, 0, 1)))), "teacher")
        if n % 9 == 4:
            change(school, submission, "load", round(max(0.0, level - 1), 2))
        made.append(submission)
    return made


def _timed(school: School, submission: str, chance: random.Random) -> None:
    with school.store.write() as session:
        round_ = session.query(tables.Round).filter_by(submission_id=submission, current=True).one()
        start = round_.created_at
        seconds = [chance.uniform(0.5, 3), chance.uniform(1, 90), chance.uniform(15, 60)]
        round_.prepared_at = start + timedelta(seconds=seconds[0])
        round_.dispatched_at = start + timedelta(seconds=sum(seconds[:2]))
        round_.finished_at = start + timedelta(seconds=sum(seconds))
        for stage, machine, model in (
            ("analysis", "dgx-spark-1", "qwen3-coder:30b"),
            ("feedback", "mac-studio-1", "gemma-3-27b"),
        ):
            session.add(
                tables.Run(
                    round_id=round_.id, stage=stage, attempt=1, state="done", accepted=True, machine=machine,
                    model=model, seconds=seconds[2] - 1, output_tokens=chance.randint(300, 800),
                    dispatched_at=round_.dispatched_at, finished_at=round_.finished_at, result={"ok": True},
                )
            )  # fmt: skip
