"""A class whose rubric names one function where students also use another, which its model takes as right."""

from __future__ import annotations

import random
from dataclasses import dataclass

from grading.checks import collect
from grading.checks.kinds.code import Uses
from grading.documents import UploadedFile, read, set_apart
from grading.documents.limits import Limits
from grading.domain.document import Document
from grading.domain.jobs import Provenance, Result
from grading.domain.report import Report
from grading.domain.rubric import Criterion, Rubric
from grading.scoring import combine
from grading.store import tables
from grading.store.accounts import users
from grading.store.assignments import versions
from grading.store.assignments.versions import NewVersion
from grading.store.submissions import intake
from grading.store.submissions.intake import IncomingSubmission
from tests.integration.webapp import School

RUBRIC = Rubric(
    criteria=(
        Criterion(
            id="join", title="Joins the tables", description="Use left_join() on the id.", points=4,
            checks=(Uses(all_of=("left_join",)),),
        ),
        Criterion(id="tidy", title="Tidies the data", points=3, checks=(Uses(all_of=("mutate", "filter")),)),
        Criterion(id="plot", title="Draws a plot", points=3, checks=(Uses(all_of=("ggplot",)),)),
        Criterion(id="think", title="Thinks about it", points=2, stage="feedback"),
    )
)  # fmt: skip
JOINS = {
    "left_join": 'both <- left_join(sales, people, by = "id")',
    "merge": 'both <- merge(sales, people, by = "id", all.x = TRUE)',
    "": "both <- sales",
}
OTHER_LINES = ("print(head(sales))", "summary(both)", 'message("done")', "str(people)", "nrow(both)")
NOISE = 0.1
"""Criteria that the model judges at random."""


@dataclass(frozen=True)
class Student:
    """What a student wrote, and how much of it is there."""

    source: str
    levels: dict[str, int]


def student(chance: random.Random, number: int) -> Student:
    """The work of one student; the model's levels are what the work deserves, but for noise."""
    join = chance.choices(list(JOINS), (70, 16, 14))[0]
    tidy, plot = chance.random() < 0.8, chance.random() < 0.8
    lines = [
        f"# student {number}",
        'sales <- read.csv("sales.csv")',
        'people <- read.csv("people.csv")',
        JOINS[join],
        *(
            ["both <- mutate(both, total = price * amount)", "both <- filter(both, total > 0)"]
            if tidy
            else []
        ),
        *(["ggplot(both) + geom_point(aes(id, total))"] if plot else []),
        *chance.sample(OTHER_LINES, 3),
        "# The totals differ by region, since the shops in the north sell more of the expensive things.",
    ]
    source = "\n".join(lines) + "\n"
    levels = {
        name: chance.randint(0, 4) if chance.random() < NOISE else one
        for name, one in deserved(source).items()
    }
    return Student(source, levels)


def deserved(source: str) -> dict[str, int]:
    """The levels that a person gives."""
    joined = any(name in source for name in JOINS if name)
    shown = ("mutate" in source, "ggplot" in source)
    thought = 1 + ("summary(both)" in source) + ("nrow(both)" in source)
    return {"join": 4 * joined, "tidy": 4 * shown[0], "plot": 4 * shown[1], "think": thought}


def report_of(documents: tuple[Document, ...], rubric: Rubric, made: Student) -> Report:
    """As the server combines the checks with what the model said, which is less sure where it is wrong."""
    results = {}
    right = deserved(made.source)
    for stage in ("analysis", "feedback"):
        judged = [
            {"criterion": one.id, "level": level, "confidence": 95 if level == right[one.id] else 60}
            for one in rubric.of_stage(stage)
            for level in (made.levels[one.id],)
        ]
        words = {"achieved": "a", "reflection": "r", "practice": "p", "next_step": "n"}
        output = {"judgements": judged, **(words if stage == "feedback" else {})}
        origin = Provenance(machine="m", engine="ollama", model="planted", uses_model=True)
        results[stage] = Result(
            run_id=stage, round_id="r", stage=stage, ok=True, output=output, provenance=origin
        )
    return combine(rubric, collect(documents, rubric), results, {}, documents)


def plant(school: School, count: int, seed: int = 1) -> int:
    """A class of so many students, graded; the assignment's id."""
    chance = random.Random(seed)
    with school.store.write() as session:
        new = NewVersion("join", "Joining", "r", "after_review", "d-join", RUBRIC)
        assignment, _, _ = versions.import_version(session, "ba", new)
        for number in range(count):
            name = f"join-{number}"
            user = users.create_user(session, name, name=f"Student {number}")
            users.enrol(session, user.id, assignment.course_id, "student")
            made = student(chance, number)
            content = read([UploadedFile("work.R", made.source.encode())], Limits())
            accepted = intake.accept_submission(
                session, IncomingSubmission(assignment.id, user.id, "form", content)
            )
            found = report_of(set_apart(content.documents, ()), RUBRIC, made)
            round_ = session.get_one(tables.Round, accepted.round_id)
            round_.state = found.status.value
            session.add(
                tables.Grade(
                    round_id=accepted.round_id, submission_id=accepted.submission_id, points=found.points,
                    points_so_far=found.points_so_far, final_points=found.points,
                    max_points=found.max_points, held=found.held, report=found.model_dump(mode="json"),
                    created_at=round_.created_at,
                )
            )  # fmt: skip
        return assignment.id
