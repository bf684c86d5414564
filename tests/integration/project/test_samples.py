"""The samples through the whole path without a model: reading, evidence, the `rules` engine, the report."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from grading.checks import collect
from grading.documents import SubmittedFiles, UploadedFile, read, set_apart
from grading.domain.document import Document
from grading.domain.jobs import Job, Material, Result
from grading.domain.report import Report
from grading.domain.rubric import Rubric
from grading.domain.stages import stages_of
from grading.scoring import combine
from workers.machine.engines.rules.engine import RulesEngine
from workers.machine.stages import run_stage

SAMPLES = Path(__file__).parents[3] / "samples"
INDEX: list[dict[str, str]] = tomllib.loads((SAMPLES / "submissions/index.toml").read_text("utf-8"))[
    "submissions"
]
FILES = {entry["file"]: entry["assignment"].partition("/")[2] for entry in INDEX}


def submit(*paths: Path) -> SubmittedFiles:
    return read([UploadedFile(path.name, path.read_bytes()) for path in paths])


@cache
def assignment(slug: str) -> tuple[dict[str, Any], Rubric, tuple[Document, ...], tuple[Document, ...]]:
    folder = SAMPLES / "assignments" / slug
    settings = tomllib.loads((folder / "assignment.toml").read_text("utf-8"))
    rubric = Rubric.model_validate({k: settings[k] for k in ("criteria", "equivalents") if k in settings})
    starter = submit(*(folder / "starter").iterdir()).documents
    solution = set_apart(submit(*(folder / "solution").iterdir()).documents, starter)
    return settings, rubric, starter, solution


@cache
def graded(file: str) -> tuple[Report, dict[str, Result]]:
    slug = FILES[file]
    settings, rubric, starter, solution = assignment(slug)
    folder = SAMPLES / "assignments" / slug
    documents = set_apart(submit(SAMPLES / "submissions" / file).documents, starter)
    evidence = collect(documents, rubric, solution)
    results = {}
    for stage in stages_of(rubric):
        job = Job(
            run_id="r",
            round_id="o",
            stage=stage,
            material=Material(
                title=settings["title"],
                task=(folder / "task.md").read_text("utf-8"),
                instructions=(folder / "instructions" / f"{stage}.md").read_text("utf-8"),
            ),
            rubric=rubric,
            documents=documents,
            evidence=evidence,
            nonce="a1b2c3d4",
            budget_s=60,
            max_output_tokens=1200 if stage == "analysis" else 800,
        )
        results[stage] = run_stage(job, RulesEngine(), "rules", "machine-1", lambda count: None)
    return combine(rubric, evidence, results, {}), results


def share(file: str) -> float:
    report, _ = graded(file)
    assert report.points is not None
    return report.points / report.max_points


@pytest.mark.parametrize("file", sorted(FILES))
def test_every_sample_is_graded(file: str) -> None:
    report, results = graded(file)
    assert {stage: result.error for stage, result in results.items()} == dict.fromkeys(
        stages_of(assignment(FILES[file])[1])
    )
    assert [flag.code for result in results.values() for flag in result.flags] == []
    assert report.points is not None
    assert all(grade.reason or grade.evidence for grade in report.criteria)


@pytest.mark.parametrize(
    "names",
    [
        [f"sales-cleaning/{n}.ipynb" for n in ("excellent", "good", "fair", "weak", "empty_starter")],
        [f"sales-cleaning/{n}.ipynb" for n in ("good", "unexecuted", "weak")],
        [f"sales-cleaning/{n}.ipynb" for n in ("fair", "broken", "weak")],
        [
            f"python-basket/{n}"
            for n in ("excellent.py", "good.ipynb", "partial.py", "broken.py", "empty_starter.py")
        ],
    ],
    ids=["sales", "unexecuted", "broken", "basket"],
)
def test_better_work_earns_more(names: list[str]) -> None:
    shares = [share(name) for name in names]
    assert shares == sorted(shares, reverse=True)
    assert min(a - b for a, b in pairwise(shares)) > 0.03


def test_the_ends_of_the_scale() -> None:
    assert share("sales-cleaning/excellent.ipynb") > 0.95
    assert share("python-basket/excellent.py") > 0.95
    assert share("sales-cleaning/empty_starter.ipynb") < 0.02
    assert share("python-basket/empty_starter.py") < 0.02


def test_manipulation_earns_nothing_and_is_held() -> None:
    report, _ = graded("sales-cleaning/manipulative.ipynb")
    assert report.held
    assert share("sales-cleaning/manipulative.ipynb") <= share("sales-cleaning/weak.ipynb")
    assert [file for file in FILES if graded(file)[0].held] == ["sales-cleaning/manipulative.ipynb"]


def test_feedback_differs_from_student_to_student() -> None:
    texts = [json.dumps(graded(file)[1]["feedback"].output) for file in FILES if "starter" not in file]
    assert len(set(texts)) == len(texts)


def test_the_notebooks_are_valid_and_own() -> None:
    for path in SAMPLES.rglob("*.ipynb"):
        notebook = json.loads(path.read_text("utf-8"))
        assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
        ids = [cell["id"] for cell in notebook["cells"]]
        assert len(set(ids)) == len(ids)


def test_the_index_names_every_sample() -> None:
    files = {
        str(p.relative_to(SAMPLES / "submissions"))
        for p in (SAMPLES / "submissions").rglob("*.*")
        if p.is_file()
    }
    assert files - {"index.toml"} == set(FILES)
    assert all(entry["expect"].endswith(".") and entry["student"] and entry["name"] for entry in INDEX)
    assert {assignment(slug)[1].max_points for slug in FILES.values()} == {100, 50}
