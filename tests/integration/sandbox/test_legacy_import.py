"""A rubric of the older autograder, translated, tells answers from nonsense: measured by running both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from grading.assignments.loader import Assignment, read_files
from grading.checks import collect
from grading.config.settings import SandboxSettings
from grading.documents import Limits, UploadedFile, read, set_apart
from grading.documents.notebook import in_language
from grading.domain.document import Document
from grading.domain.jobs import Provenance, Result
from grading.domain.messages import verbatim
from grading.scoring import combine
from grading.store import Store, schema
from tests.support.services import SqliteDatabases
from workers.sandbox.backends import open_backend
from workers.sandbox.plan_runner import Runner, Shelf
from workers.sandbox.reference_scores import Score, contents, require_proven, score_of, scores
from workers.sandbox.request_runner import Executor
from workers.sandbox.runtimes import find_runtime

GAUGES = (
    "station,flow,measured\nEms,80,2024-03-01\nIller,41,2024-03-02\nLech,115,2024-03-03\nIsar,63,2024-03-04\n"
)
TEXTS = {"### Question 4.1: Why filter?": 30, "### Question 4.2: Why order?": 20}
ANSWER = (
    "I filter before I count because a gauge with a small flow says little about floods, and the list of "
    "high flows is what the office reads first when the water of the Lech rises in spring."
)
STARTER = {
    "# Task 1.1: Import the table": ("# Your code here:\n", 'cat("Rows:", nrow(gauges), "\\n")'),
    "# Task 2.1: Keep flows above 60": ("high <- gauges %>%\n  # Your code here:\n", "print(high)"),
    "# Task 2.2: Order by flow": ("by_flow <- gauges %>%\n  # Your code here:\n", "print(by_flow)"),
    "# Task 3.1: Age of a measurement": (
        "# Add the column 'days' to 'aged': days from measured to today\n",
        "print(aged %>% select(station, days))",
    ),
}
SOLUTION = {
    "# Task 1.1: Import the table": 'library(dplyr)\ngauges <- read.csv("gauges.csv")\n',
    "# Task 2.1: Keep flows above 60": "high <- gauges %>%\n  filter(flow > 60)\n",
    "# Task 2.2: Order by flow": "by_flow <- gauges %>%\n  arrange(desc(flow))\n",
    "# Task 3.1: Age of a measurement": (
        "aged <- gauges %>%\n  mutate(days = as.numeric(Sys.Date() - as.Date(measured)))\n"
    ),
}
AGES = "  station days\n1     Ems  900\n2   Iller  899\n3    Lech  898\n4    Isar  897\n"
NONSENSE = (
    "x <- list(1)\nfor (f in c('filter', 'arrange', 'desc', 'mutate')) x <- c(x, f)\n"
    "try(x %>% filter(TRUE) %>% arrange(desc(1)) %>% mutate(days = 1), silent = TRUE)\n"
    "try(library(dplyr), silent = TRUE)\ntry(read.csv('none'), silent = TRUE)\ntry(select(x))\n"
    "gauges <- high <- by_flow <- aged <- days <- Sys.Date()\nas.numeric(1)\nas.Date('2024-01-01')\nx\n"
)
RUBRIC = {
    "assignment_info": {"title": "Rivers", "total_points": 40},
    "rubric_elements": {
        "technical_execution": {
            "max_points": 8,
            "criteria": ["All code cells executed", "Proper use of pipe operator (%>%)", "Correct filter()"],
            "deductions": {"template_only": "Only template code = 0 points"},
        },
        "data_analysis": {
            "max_points": 20,
            "required_sections": {
                "part1_import": {"points": 4, "verification": ["read.csv", "gauges <-", "str()"]},
                "part2_rows": {
                    "points": 10,
                    "subtasks": {
                        "task_2_1_filter": {"points": 5, "verification": ["filter(", "%>%"]},
                        "task_2_2_order": {"points": 5, "verification": ["gauges.*%>%.*arrange", "desc("]},
                    },
                },
                "part3_dates": {"points": 6, "verification": ["mutate(", "days"]},
            },
        },
        "business_thinking": {
            "max_points": 12,
            "reflection_questions": {
                "question_1_filter": {"points": 6, "minimum_words": 30},
                "question_2_order": {"points": 6, "minimum_words": 20},
            },
        },
    },
    "score_validation": {"rules": {"something_else": {"action": "deduct 5%"}}},
}


def notebook(code: dict[str, str], texts: dict[str, str], outputs: dict[str, str] | None = None) -> bytes:
    """A notebook in R; `code` by the first line of its cell, the starter's lines below."""
    cells: list[dict[str, Any]] = []
    for place, (_, below) in STARTER.items():
        shown = (outputs or {}).get(place)
        out = [{"output_type": "stream", "name": "stdout", "text": shown}] if shown else []
        source = f"{place}\n{code[place]}\n{below}"
        count = 1 if outputs is not None else None
        cells.append(
            {"cell_type": "code", "source": source, "outputs": out, "execution_count": count, "metadata": {}}
        )
    for place in TEXTS:
        cells.append(
            {"cell_type": "markdown", "source": f"{place}\n\n{texts.get(place, '')}", "metadata": {}}
        )
    kernel = {"kernelspec": {"name": "ir", "display_name": "R", "language": "R"}}
    return json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}).encode()


GIVEN = {place: above for place, (above, _) in STARTER.items()}
FULL = dict.fromkeys(TEXTS, ANSWER)


@pytest.fixture(scope="module")
def assignment() -> Assignment:
    manifest = 'title = "Rivers"\nlanguage = "r"\ncourse = "hydrology"\nrubric = "rubric.json"\n'
    shown = dict.fromkeys(STARTER, "") | {"# Task 3.1: Age of a measurement": AGES}
    files = {
        "assignment.toml": manifest.encode(),
        "rubric.json": json.dumps(RUBRIC).encode(),
        "data/gauges.csv": GAUGES.encode(),
        "starter/rivers.ipynb": notebook(GIVEN, {}),
        "solution/rivers.ipynb": notebook(SOLUTION, FULL, shown),
    }
    return read_files(files, Limits(), "rivers")


@pytest.fixture(scope="module")
def runner(sqlite_databases: SqliteDatabases, assignment: Assignment) -> Iterator[Runner]:
    """One for all: what was run once is kept, and what is run again starts in a fork."""
    checks = SandboxSettings()
    store = Store(sqlite_databases.fresh(schema.upgrade))
    with Shelf() as shelf:
        executor = Executor(open_backend("bubblewrap"), lambda language: find_runtime(language, checks))
        yield Runner(store, executor, shelf, contents(assignment))
    store.close()


def work(code: dict[str, str], texts: dict[str, str] | None = None) -> tuple[Document, ...]:
    data = notebook(SOLUTION | code, FULL if texts is None else texts, dict.fromkeys(STARTER, ""))
    return in_language(read([UploadedFile("rivers.ipynb", data)], Limits()).documents, "r")


def scored(assignment: Assignment, runner: Runner, code: dict[str, str]) -> Score:
    return score_of("work", assignment, work(code), runner, SandboxSettings().limits)


def test_solution_starter_and_nonsense_are_told_apart(assignment: Assignment, runner: Runner) -> None:
    found = {one.work: one for one in scores(assignment, runner, SandboxSettings().limits)}
    require_proven(list(found.values()))
    assert found["solution"].share >= 0.95, found["solution"].lost
    assert found["starter"].share <= 0.02
    assert found["starter and one line"].share <= 0.02
    nonsense = scored(assignment, runner, dict.fromkeys(STARTER, NONSENSE))
    assert nonsense.share <= 0.15, nonsense.shares
    told = "\n".join(assignment.notes)
    assert "part1_import.verification: not asked for, as the solution does not have str." in told
    assert "score_validation.something_else" in told


def test_wrong_and_missing_answers_lose_points_of_their_own(assignment: Assignment, runner: Runner) -> None:
    whole = scored(assignment, runner, {})
    assert whole.share == 1, whole.lost
    own = {
        "# Task 2.1: Keep flows above 60": "task_2_1_filter",
        "# Task 2.2: Order by flow": "task_2_2_order",
        "# Task 3.1: Age of a measurement": "part3_dates",
    }
    for place, criterion in own.items():
        without = scored(assignment, runner, {place: GIVEN[place]})
        assert without.shares[criterion] == 0, place
    wrong = scored(
        assignment, runner, {"# Task 2.1: Keep flows above 60": "high <- gauges %>%\n  filter(flow > 100)\n"}
    )
    assert wrong.shares["task_2_1_filter"] < 0.7
    assert {k: v for k, v in wrong.shares.items() if k != "task_2_1_filter"} == {
        k: v for k, v in whole.shares.items() if k != "task_2_1_filter"
    }


def points_of_questions(assignment: Assignment, texts: dict[str, str]) -> float:
    """What a model's full marks are worth where the answers are these."""
    rubric = assignment.rubric
    documents = set_apart(work({}, texts), assignment.starter)
    judged = [{"criterion": c.id, "level": c.highest} for c in rubric.of_stage("feedback")]
    output = {"judgements": judged, "achieved": "a", "reflection": "r", "practice": "p", "next_step": "n"}
    provenance = Provenance(machine="m", engine="e", model="qwen", uses_model=True)
    result = Result(run_id="r", round_id="r", stage="feedback", ok=True, output=output, provenance=provenance)
    evidence = collect(documents, rubric, assignment.solution)
    made = combine(rubric, evidence, {"feedback": result}, {"analysis": verbatim("not asked")})
    taken = sum(a.points for a in made.adjustments if a.adjustment.startswith("words-"))
    return sum(c.points for c in rubric.of_stage("feedback")) - taken


def test_a_question_without_an_answer_loses_its_points(assignment: Assignment) -> None:
    assert points_of_questions(assignment, FULL) == 12
    for place in TEXTS:
        assert points_of_questions(assignment, FULL | {place: ""}) == 6
    short = points_of_questions(assignment, dict.fromkeys(TEXTS, "It helps."))
    assert 0 < short < 1.2
