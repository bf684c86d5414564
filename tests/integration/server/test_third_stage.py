"""A third stage: one row and one module, and everything else has it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import select

from app import create_app
from grading.domain import stages
from grading.domain.jobs import Job, Judgement
from grading.domain.outcome import Report
from grading.domain.rubric import Criterion, Rubric
from grading.domain.stages import StageOutput, StageRow
from grading.scoring.text import as_text
from grading.store.tables import Grade
from tests.integration.webapp import School
from tests.support import aging
from tests.support.aging import Played, played
from tests.support.factories import RUBRIC, add_assignment, submit
from workers.machine.engines.instant import InstantEngine
from workers.machine.stages import Stage, known_stages, run_stage
from workers.server import record

NAME, TITLE = "style", "Style of the code"
REMARK = "Names say what things are. <b>Not HTML</b>"
WITH_STYLE = Rubric(criteria=(*RUBRIC.criteria, Criterion(id="names", title="Names", points=10, stage=NAME)))


class StyleOutput(StageOutput):
    """What the new stage answers."""

    remark: str
    hints: tuple[str, ...] = ()


ROW = StageRow(NAME, TITLE, StyleOutput, max_output_tokens=300, written=("remark", "hints"), always=False)


def build(value: dict[str, Any], judgements: tuple[Judgement, ...], _job: Job) -> StyleOutput:
    return StyleOutput(judgements=judgements, remark=REMARK, hints=("Shorter functions", *value["hints"]))


def module() -> ModuleType:
    """The new stage's module: prompt, schema and parsing."""
    made = ModuleType(f"workers.machine.stages.{NAME}")
    made.STAGE = Stage(  # type: ignore[attr-defined]
        name=NAME,
        version="style/1",
        instructions="Say how the code reads.",
        answer=lambda _job, _sizes: "Answer with a remark and hints.",
        properties=lambda _job, _sizes: {
            "remark": {"type": "string", "minLength": 1, "maxLength": 200},
            "hints": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        },
        build=build,  # type: ignore[arg-type]
        full=400,
    )
    return made


@pytest.fixture
def school(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[School]:
    """A school whose Grader has the stage."""
    known_stages.cache_clear()
    monkeypatch.setitem(stages.STAGES, NAME, ROW)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, f"workers.machine.stages.{NAME}", module())
    monkeypatch.setattr(aging, "STAGES", ("analysis", "feedback", NAME))
    made = School(tmp_path)
    yield made
    made.close()
    known_stages.cache_clear()


@pytest.fixture
def system(school: School, redis_url: str, root: Path, tmp_path: Path) -> Iterator[Played]:
    shipped = (root / "config.toml").read_text(encoding="utf-8")
    placed = f'[machines.stages]\n{NAME} = {{ engine = "instant", model = "s" }}\n'
    config = (
        shipped.replace("[machines.stages]\n", placed, 1) + f"\n[stages.{NAME}]\nmax_output_tokens = 300\n"
    )
    (tmp_path / "config.toml").write_text(config, encoding="utf-8")
    with played(f"sqlite:///{tmp_path / 'grader.db'}", redis_url, tmp_path) as made:
        school.app = create_app(
            replace(school.services, config=made.server.config, dispatch=made.server.dispatch)
        )
        yield made


def grade(system: Played) -> tuple[str, Report]:
    """A submission through dispatch, a machine's stages and recording; its id and report."""
    assignment = add_assignment(system.store, "styled", release="at_once", rubric=WITH_STYLE)
    accepted = submit(system.store, assignment, "s-1")
    system.pass_time()
    system.heartbeat()
    system.sweeper.step()
    jobs = [Job.model_validate(job) for job in system.messages()]
    assert sorted(job.stage for job in jobs) == ["analysis", "feedback", NAME]
    made = [run_stage(job, InstantEngine(), "instant", "dgx-spark-1", lambda *_: None) for job in jobs]
    assert [one.outcome for one in record.record(system.server, made)] == ["accepted"] * 3
    with system.store.read() as session:
        stored = session.scalars(select(Grade.report)).one()
    return accepted.submission_id, Report.model_validate(stored)


def test_its_judgement_counts_and_its_words_are_everywhere(school: School, system: Played) -> None:
    submission, report = grade(system)
    assert report.outputs[NAME]["remark"] == REMARK
    assert {one.criterion: one.stage for one in report.criteria}["names"] == NAME
    assert report.stages[NAME].engine == "instant"
    assert f"## {TITLE}" in as_text(report, "x", released=True)
    client = school.client("admin")
    page = client.get(f"/submissions/{submission}").get_data(as_text=True)
    assert page.count(f"<h3>{TITLE}</h3>") == 1
    assert "Shorter functions" in page
    assert "<b>Not HTML</b>" not in page
    status = client.get(f"/submissions/{submission}/status.json").get_json()
    assert {TITLE} <= {one["title"] for one in status["stages"]}
    pdf = client.get(f"/submissions/{submission}/result.pdf")
    assert (pdf.status_code, pdf.data[:5]) == (200, b"%PDF-")
    told = client.get(f"/api/v1/submissions/{submission}", headers=school.token("admin", "read")).get_json()
    assert set(told["stages"]) == {"analysis", "feedback", NAME}
    assert told["report"]["outputs"][NAME]["remark"] == REMARK


def test_operators_see_the_machines_that_do_it(school: School, system: Played) -> None:
    system.heartbeat()
    client = school.client("admin")
    assert TITLE in client.get("/machines").get_data(as_text=True)
    metrics = school.app.test_client().get("/metrics").get_data(as_text=True)
    assert f'grader_stage_machines_up{{stage="{NAME}"}} 1.0' in metrics


def test_a_round_without_a_criterion_for_it_does_not_have_it(school: School, system: Played) -> None:
    submit(system.store, add_assignment(system.store, "plain"), "s-1")
    system.pass_time()
    system.heartbeat()
    system.sweeper.step()
    assert sorted(job["stage"] for job in system.messages()) == ["analysis", "feedback"]
