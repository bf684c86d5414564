"""The samples of larger homework: parts of cells, own work, given cells, counts, comments, names."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from grading.assignments.editor import form
from grading.assignments.editor.folder import plain
from grading.assignments.editor.toml_writer import written
from grading.assignments.loader import Assignment, read_folder
from grading.checks import collect
from grading.documents import UploadedFile, read, set_apart
from grading.domain.evidence import CheckOutcome, Evidence
from grading.domain.jobs import Provenance, Result
from grading.domain.report import Report
from grading.domain.rubric import Rubric
from grading.domain.rubric_errors import checks_of
from grading.scoring import combine

MORE = Path(__file__).parents[3] / "samples" / "more"
INDEX: list[dict[str, Any]] = tomllib.loads((MORE / "submissions/index.toml").read_text("utf-8"))[
    "submissions"
]
SLUGS = sorted(folder.name for folder in (MORE / "assignments").iterdir())


@cache
def assignment(slug: str) -> Assignment:
    return read_folder(MORE / "assignments" / slug)


@cache
def graded(file: str) -> Evidence:
    row = next(row for row in INDEX if row["file"] == file)
    about = assignment(row["assignment"].partition("/")[2])
    path = MORE / "submissions" / file
    documents = read([UploadedFile(path.name, path.read_bytes())]).documents
    return collect(set_apart(documents, about.starter), about.rubric, about.solution)


def outcomes(evidence: Evidence, criterion: str) -> dict[str, CheckOutcome]:
    found = evidence.of(criterion)
    assert found is not None
    return {one.label: one for one in found.outcomes}


@pytest.mark.parametrize("row", INDEX, ids=[row["file"] for row in INDEX])
def test_a_sample_earns_what_the_index_says(row: dict[str, Any]) -> None:
    rubric, evidence = assignment(row["assignment"].partition("/")[2]).rubric, graded(row["file"])
    found = {one.criterion: one.share or 0.0 for one in evidence.criteria}
    share = sum(one.points * found[one.id] for one in rubric.criteria if not one.bonus) / rubric.max_points
    assert row["share"][0] <= share <= row["share"][1]


@pytest.mark.parametrize("slug", SLUGS)
def test_the_solution_earns_every_check_in_full(slug: str) -> None:
    about = assignment(slug)
    evidence = collect(set_apart(about.solution, about.starter), about.rubric, about.solution)
    assert [(one.label, one.message) for c in evidence.criteria for one in c.outcomes if one.earned < 1] == []


@pytest.mark.parametrize("slug", SLUGS)
def test_the_starter_earns_nothing(slug: str) -> None:
    about = assignment(slug)
    evidence = collect(set_apart(about.starter, about.starter), about.rubric, about.solution)
    assert {one.share for one in evidence.criteria} == {0.0}


@pytest.mark.parametrize("slug", SLUGS)
def test_their_rubrics_go_through_the_form_and_its_texts(slug: str) -> None:
    rubric = assignment(slug).rubric
    pairs: list[tuple[str, str]] = []

    def flat(raw: Any, name: str) -> None:
        for key, one in raw.items() if isinstance(raw, dict) else enumerate(raw):
            if isinstance(one, str):
                pairs.append((f"{name}.{key}".strip("."), one))
            else:
                flat(one, f"{name}.{key}")

    flat(form.to_raw(rubric), "")
    assert form.read(form.of_form(pairs), ("analysis", "feedback")) == (rubric, ())
    assert Rubric.model_validate(tomllib.loads(written(plain(rubric)))) == rubric
    assert Rubric.model_validate_json(rubric.model_dump_json()) == rubric


def test_they_show_all_that_larger_homework_needs() -> None:
    checks = [check for slug in SLUGS for _, check in checks_of(assignment(slug).rubric)]
    kinds = {type(check).model_fields["kind"].default for check in checks}
    assert {"count", "comments", "documented", "function_length", "naming"} <= kinds
    assert all(any(getattr(check, key) for check in checks) for key in ("part", "own_lines", "given"))


def test_one_question_of_two_in_a_cell_earns_its_own_points() -> None:
    rows = outcomes(graded("lending-library/half.ipynb"), "rows")
    assert (rows["a) filters long loans"].earned, rows["b) filters thick crime"].earned) == (1.0, 0.0)


def test_two_lines_that_ran_earn_nothing_for_having_run() -> None:
    runs = outcomes(graded("lending-library/one_line.ipynb"), "runs")
    assert {one.message for one in runs.values()} == {"needs at least 12 lines of your own code; there are 2"}


def test_the_given_report_earns_where_it_was_run() -> None:
    shares = {}
    for row in INDEX[:3]:
        found = graded(row["file"]).of("report")
        shares[row["file"]] = found.share if found is not None else None
    assert list(shares.values()) == [1.0, 1.0, 0.0]


def report_of(slug: str, evidence: Evidence) -> Report:
    """What checks alone come to, with deductions, caps and bonus."""
    how = Provenance(machine="m", engine="rules", model="rules")
    outputs: dict[str, Any] = {
        "analysis": {"judgements": []},
        "feedback": {"judgements": [], "achieved": "a", "reflection": "r", "practice": "p", "next_step": "n"},
    }
    results = {
        stage: Result(run_id=stage, round_id="r", stage=stage, ok=True, output=output, provenance=how)
        for stage, output in outputs.items()
    }
    return combine(assignment(slug).rubric, evidence, results, {})


@pytest.mark.parametrize(
    ("file", "taken", "bonus", "total"),
    [
        ("excellent", {}, 4.0, 102.0),
        ("half", {"few_pipes": 1.8, "slips": 2.0, "reflection": 25.0}, 2.0, 13.53),
        ("one_line", {"few_pipes": 1.8, "template": 0.2, "reflection": 4.5}, 0.0, 0.0),
    ],
)
def test_deductions_caps_and_bonus_come_to_what_the_rubric_says(
    file: str, taken: dict[str, float], bonus: float, total: float
) -> None:
    made = report_of("lending-library", graded(f"lending-library/{file}.ipynb"))
    assert {one.adjustment: one.points for one in made.adjustments if one.points} == taken
    assert [one.points for one in made.criteria if one.bonus] == [bonus]
    assert (made.points, made.max_points, made.bonus_lost) == (total, 100, 2.0 if total > 100 else 0.0)
    assert "adjustment_undecided" not in {flag.code for flag in made.flags}


def test_the_starter_comes_to_nothing_and_no_less() -> None:
    about = assignment("lending-library")
    evidence = collect(set_apart(about.starter, about.starter), about.rubric, about.solution)
    made = report_of("lending-library", evidence)
    assert (made.points, {one.points for one in made.adjustments}) == (0.0, {0.0})
