"""From an execution to jobs, prompts, reports and pages: nothing of a hidden test gets through."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from grading import scoring
from grading.checks.kinds.runs import RunsClean
from grading.checks.kinds.tests import Case, PassesTests
from grading.config.settings import Limits
from grading.documents import Identity, UploadedFile, read
from grading.documents.limits import Limits as ReadingLimits
from grading.domain.document import Output
from grading.domain.jobs import Job, Result
from grading.domain.report import Report
from grading.domain.rubric import Criterion, Rubric
from grading.domain.stages import stages_of
from grading.execution.plan import make_plan
from grading.execution.values import Answer, Execution, Played, Request, Shape
from tests.integration.webapp import School
from workers.machine.engines.rules.engine import RulesEngine
from workers.machine.stages import known_stages, run_stage
from workers.server.prepare import Prepared, ReceivedSubmission, make_ready
from workers.server.rubric_cache import Version

SOURCE = b"def add(a, b):\n    return a - b\n\nprint(add(7, 2))\n"
SEEN, GIVEN, WANTED = "add(1, 2)", "add(98712365401, 1)", "98712365402"
"""A visible case, and input and expected value of a hidden one."""
GOT = "98712365400"
RUBRIC = Rubric(
    criteria=(
        Criterion(
            id="behaves",
            title="Behaves",
            points=10,
            checks=(
                PassesTests(
                    label="adds",
                    cases=(
                        Case(expression="add(0, 0)", expected="0"),
                        Case(expression=SEEN, expected="3"),
                        Case(expression=GIVEN, expected=WANTED, name="hidden-name", hidden=True),
                    ),
                ),
                RunsClean(label="runs"),
            ),
        ),
        Criterion(id="think", title="Thinks", points=2, stage="feedback"),
    )
)
# long numbers: short ones turn up by chance in ids and in fractions of seconds
NEVER = (GIVEN, WANTED, GOT, "hidden-name", "98712365401")


def number(text: str) -> Answer:
    return Answer(state="value", value=Shape(kind="number", type="int", text=text))


def play(requests: Mapping[str, Request]) -> dict[str, Execution]:
    """What a sandbox would answer: the work subtracts, the expected values are what they say."""
    known = {"add(0, 0)": "0", SEEN: "-1", GIVEN: GOT, "0": "0", "3": "3", WANTED: WANTED}
    return {
        key: Execution(
            end="finished",
            cells=tuple(
                Played(number=cell.number, state="ran", outputs=(Output(kind="stream", text="5\n"),))
                for cell in request.work.cells
            ),
            answers=tuple(number(known[expression.code]) for expression in request.expressions),
            sandbox="bubblewrap",
        )
        for key, request in requests.items()
    }


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    version = Version(
        rubric=RUBRIC,
        rubric_json={},
        starter=(),
        solution=(),
        materials={},
        data={},
        tests={},
        assignment_id=1,
    )
    documents = read([UploadedFile("work.py", SOURCE)], ReadingLimits()).documents
    submission = ReceivedSubmission(
        "r", "s", "interactive", version, documents, Identity(names=("Anna Weber",)), {}
    )
    plan = make_plan(submission.own, RUBRIC, (), files={}, tests={}, limits=Limits())
    assert plan.requests
    return make_ready(submission, plan, play(plan.requests))


def job(prepared: Prepared, stage: str) -> Job:
    content = prepared.model_dump(mode="json")
    rubric = RUBRIC.model_dump(mode="json", exclude={"criteria": {"__all__": {"checks"}}})
    return Job.model_validate(
        {
            "run_id": f"run-{stage}",
            "round_id": "round",
            "stage": stage,
            "material": {"title": "Adding"},
            "rubric": rubric,
            "documents": content["documents"],
            "evidence": content["hidden_evidence"],
            "nonce": "5eed5eed",
            "budget_s": 60,
            "max_output_tokens": 1200,
        }
    )


def _silent(count: int, phase: str = "", /) -> None:
    """Nobody looks at the progress."""


def combined(prepared: Prepared) -> Report:
    results: dict[str, Result] = {}
    for stage in stages_of(RUBRIC):
        results[stage] = run_stage(job(prepared, stage), RulesEngine(), "rules", "m", _silent)
        assert results[stage].ok, results[stage].message
    return scoring.combine(RUBRIC, prepared.evidence, results, {})


@pytest.mark.parametrize("stage", stages_of(RUBRIC))
def test_a_job_and_its_prompt_hold_nothing_of_a_hidden_test(prepared: Prepared, stage: str) -> None:
    given = job(prepared, stage)
    assert not [word for word in NEVER if word in given.model_dump_json()]
    prompt = known_stages()[stage].render(given)
    assert "1 of 2 tests passed, 0 of 1 hidden test passed" in prompt.user
    assert "output (stream) when the school ran it:\n| 5" in prompt.user
    assert (SEEN in prompt.user) == (stage == "analysis")


def test_what_a_student_reads_holds_nothing_of_a_hidden_test(prepared: Prepared, tmp_path: Path) -> None:
    school = School(tmp_path)
    submission = school.submit("anna", data=SOURCE, name="work.py")
    school.prepared(submission, prepared.model_dump(mode="json"))
    school.grade(submission, combined(prepared), released=True)
    page = school.client("anna").get(f"/submissions/{submission}").get_data(as_text=True)
    answer = school.client().get(f"/api/v1/submissions/{submission}", headers=school.token("anna"))
    for text in (page, answer.get_data(as_text=True)):
        assert not [word for word in NEVER if word in text]
    assert "1 of 2 tests passed, 0 of 1 hidden test passed" in page
    assert "2 of 3 tests fail in &#39;adds&#39;" in page
    assert "When we ran your work, it finished without errors." in page
    staff = school.client("teacher").get(f"/submissions/{submission}").get_data(as_text=True)
    assert all(word in staff for word in NEVER)
    school.close()


def test_what_a_round_keeps_is_json_that_comes_back(prepared: Prepared) -> None:
    content = json.loads(prepared.model_dump_json())
    assert Prepared.model_validate(content) == prepared
    assert content["execution"]["documents"]["work.py"]["cells"][0]["outputs"][0]["text"] == "5\n"
