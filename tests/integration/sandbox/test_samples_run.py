"""The samples with their work run in the sandbox: right is told from wrong, not having run is no fault."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import pytest

from grading.assignments.loader import Assignment, read_folder
from grading.checks import collect
from grading.checks.visibility import for_student
from grading.config.settings import SandboxSettings
from grading.documents import UploadedFile, read, set_apart
from grading.domain.evidence import CheckOutcome, Evidence
from grading.execution.plan import make_plan
from grading.execution.results import Ran
from grading.execution.values import Execution, Request
from tests.integration.project.test_samples import SAMPLES
from tests.support.fork_servers import warm
from workers.sandbox.backends import open_backend
from workers.sandbox.backends.base import Mount
from workers.sandbox.request_runner import Executor
from workers.sandbox.runtimes import find_runtime

SETTINGS = SandboxSettings()


@cache
def assignment(slug: str) -> Assignment:
    return read_folder(SAMPLES / "assignments" / slug)


@cache
def executor() -> Executor:
    made = Executor(open_backend(SETTINGS.backend), lambda language: find_runtime(language, SETTINGS))
    assert [made.problem("python"), made.problem("r")] == ["", ""]
    return made


@cache
def _run(asked: str, slug: str) -> Execution:
    request = Request.model_validate_json(asked)
    mounts = []
    for path in request.files:
        source = SAMPLES / "assignments" / slug / path
        bare = path.removeprefix("data/")
        mounts += [Mount(source, target) for target in (f"/box/{path}", f"/box/{bare}", f"/{path}")]
    warm(executor(), request)
    return executor().run(request, mounts)


@cache
def graded(file: str) -> tuple[Evidence, Evidence]:
    """With and without a sandbox."""
    slug = file.partition("/")[0]
    found = assignment(slug)
    data = (SAMPLES / "submissions" / file).read_bytes()
    documents = set_apart(read([UploadedFile(Path(file).name, data)]).documents, found.starter)
    folder = dict(found.files)
    plan = make_plan(
        documents,
        found.rubric,
        found.solution,
        files={p: hashlib.sha256(b).hexdigest() for p, b in folder.items() if p.startswith("data/")},
        tests={p: b.decode() for p, b in folder.items() if p.startswith("tests/")},
        limits=SETTINGS.limits,
        starter=found.starter,
    )
    made = {key: _run(request.model_dump_json(), slug) for key, request in plan.requests.items()}
    ran = Ran(plan, made)
    return (
        collect(documents, found.rubric, found.solution, ran),
        collect(documents, found.rubric, found.solution),
    )


def points(file: str, *, run: bool = True) -> float:
    evidence = graded(file)[0 if run else 1]
    rubric = assignment(file.partition("/")[0]).rubric
    return sum(c.points * (e.share or 0) for c in rubric.criteria if (e := evidence.of(c.id)) is not None)


def outcomes(file: str, kind: str) -> list[CheckOutcome]:
    return [o for c in graded(file)[0].criteria for o in c.outcomes if o.check.startswith(kind)]


def test_python_right_and_wrong() -> None:
    names = ["excellent.py", "good.ipynb", "partial.py", "broken.py", "empty_starter.py"]
    have = [points(f"python-basket/{name}") for name in names]
    assert have[0] == have[1] == 44
    assert have[1] - 10 > have[2] > have[3] + 10 > have[4] + 10
    assert have[4] == 0
    for name in names[:2]:
        found = outcomes(f"python-basket/{name}", "passes_tests")
        assert [o.earned for o in found] == [1, 1, 1, 1]
        assert sum(len(o.tests) for o in found) == 15
    broken = outcomes("python-basket/broken.py", "passes_tests")
    assert [o.earned for o in broken] == [0, 0, 0, 0]


def test_hidden_tests_stay_hidden() -> None:
    seen = for_student(graded("python-basket/partial.py")[0]).model_dump_json()
    assert "len(pair_counts(FEW)) gave 6" in seen
    assert "SAME" not in seen
    assert "SAME" in graded("python-basket/partial.py")[0].model_dump_json()


@pytest.mark.parametrize("name", ["excellent", "unexecuted"])
def test_r_work_that_is_right_passes(name: str) -> None:
    file = f"sales-cleaning/{name}.ipynb"
    for kind in ("passes_tests", "runs_clean", "output_close", "output_matches"):
        assert {o.earned for o in outcomes(file, kind)} == {1}, kind


def test_work_that_was_not_run_loses_only_what_the_rubric_says() -> None:
    file = "sales-cleaning/unexecuted.ipynb"
    assert points(file) > points(file, run=False) + 20
    lost = {o.label for c in graded(file)[0].criteria for o in c.outcomes if o.earned < 1}
    assert lost == {"the chart is there", "every cell was run", "about 50 words"}


def test_r_work_that_is_wrong_does_not() -> None:
    file = "sales-cleaning/weak.ipynb"
    assert max(o.earned for o in outcomes(file, "passes_tests")) == 0
    assert [f.code for f in graded(file)[0].flags] == ["path_repaired"]
    assert points(file) < points("sales-cleaning/unexecuted.ipynb") / 3


def test_the_tests_of_the_samples_are_right_themselves() -> None:
    for file in ("python-basket/partial.py", "sales-cleaning/weak.ipynb"):
        assert "tests_broken" not in {flag.code for flag in graded(file)[0].flags}
