"""A third stage: one row, one module and its placement on a machine; everything else has it then."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import select

from cli.commands.demo import Sample, _show
from grading.assignments.editor import rubric_from_model
from grading.config.settings import Config
from grading.domain import stages
from grading.domain.jobs import Job, Judgement, Result
from grading.domain.messages import define_message
from grading.domain.report import Report
from grading.domain.rubric import Criterion, Rubric
from grading.domain.stages import StageOutput, StageRow
from grading.integrations.canvas import values
from grading.scoring.plain_text_report import as_text
from grading.store.tables import Grade
from tests.integration.webapp import School, form_token, make_app
from tests.support.aging import Played, played
from tests.support.factories import RUBRIC, add_assignment, submit
from workers.machine.engines.base import Engine, Generation, Progress, Request
from workers.machine.engines.instant import InstantEngine
from workers.machine.engines.rules.engine import RulesEngine
from workers.machine.stages import Stage, known_stages, run_stage
from workers.machine.stages.schema import many, text
from workers.server import record

NAME, TITLE = "style", "Style of the code"
REMARK = "Names say what things are. <b>Not HTML</b>"
WITH_STYLE = Rubric(criteria=(*RUBRIC.criteria, Criterion(id="names", title="Names", points=10, stage=NAME)))


class StyleOutput(StageOutput):
    """What the new stage answers."""

    remark: str
    hints: tuple[str, ...] = ()


ROW = StageRow(
    name=NAME,
    title=define_message("stage.style", TITLE),
    output=StyleOutput,
    max_output_tokens=300,
    written=("remark", "hints"),
    judges="names, layout and comments",
    always=False,
)


def build(value: dict[str, Any], judgements: tuple[Judgement, ...], _job: Job) -> StyleOutput:
    return StyleOutput(judgements=judgements, remark=value["remark"], hints=tuple(value["hints"]))


class StyleModule(ModuleType):
    """The new stage's module: prompt, schema and parsing."""

    STAGE = Stage(
        name=NAME,
        version="style/1",
        instructions="Say how the code reads.",
        answer=lambda _job, _sizes: "Answer with a remark and hints.",
        properties=lambda _job, sizes: {"remark": text(200), "hints": many(text(80), 2)},
        build=build,
        full=400,
    )


class Model(InstantEngine):
    """Says something about style."""

    def generate(self, request: Request, progress: Progress) -> Generation:
        made = super().generate(request, progress)
        if request.job.stage != NAME:
            return made
        answer = {**json.loads(made.text), "remark": REMARK, "hints": ["Shorter functions"]}
        return replace(made, text=json.dumps(answer))


@pytest.fixture
def school(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[School]:
    """A school whose Grader has the stage."""
    known_stages.cache_clear()
    monkeypatch.setitem(stages.STAGES, NAME, ROW)
    module = f"workers.machine.stages.{NAME}"
    monkeypatch.setitem(sys.modules, module, StyleModule(module))
    made = School(tmp_path)
    yield made
    made.close()
    known_stages.cache_clear()


@pytest.fixture
def system(school: School, redis_url: str, root: Path, tmp_path: Path) -> Iterator[Played]:
    shipped = (root / "config.toml").read_text(encoding="utf-8")
    placed = f'[machines.stages]\n{NAME} = {{ engine = "instant", model = "s" }}\n'
    config = shipped.replace("[machines.stages]\n", placed, 1)
    (tmp_path / "config.toml").write_text(config, encoding="utf-8")
    with played(f"sqlite:///{tmp_path / 'grader.db'}", redis_url, tmp_path) as made:
        school.app = make_app(
            replace(school.services, config=made.server.config, dispatch=made.server.dispatch)
        )
        yield made


def grade(system: Played, engine: Engine) -> tuple[str, Report]:
    """A submission through dispatch, a machine's stages and recording; its id and report."""
    assignment = add_assignment(system.store, "styled", release="at_once", rubric=WITH_STYLE)
    accepted = submit(system.store, assignment, "s-1")
    system.pass_time()
    system.heartbeat()
    system.sweeper.step()
    jobs = [Job.model_validate(job) for job in system.messages()]
    assert sorted(job.stage for job in jobs) == ["analysis", "feedback", NAME]
    assert {job.max_output_tokens for job in jobs if job.stage == NAME} == {300}
    made = [done_by(engine, job) for job in jobs]
    assert [one.outcome for one in record.record(system.server, made)] == ["accepted"] * 3
    return accepted.submission_id, report_of(system)


def done_by(engine: Engine, job: Job) -> Result:
    result = run_stage(job, engine, engine.name, "dgx-spark-1", lambda *_: None)
    assert result.ok, result.message
    return result


def report_of(system: Played) -> Report:
    with system.store.read() as session:
        return Report.model_validate(session.scalars(select(Grade.report)).one())


def test_its_judgement_counts_and_its_words_are_everywhere(school: School, system: Played) -> None:
    submission, report = grade(system, Model())
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


def test_its_words_are_put_differently_and_told_elsewhere(school: School, system: Played) -> None:
    submission, report = grade(system, Model())
    client = school.client("admin")
    review = f"/submissions/{submission}/review"
    page = client.get(review).get_data(as_text=True)
    assert f'name="target" value="{NAME}.remark"' in page
    assert f'name="target" value="{NAME}.hints"' not in page  # a list
    seen = re.search(r'name="seen" value="([^"]+)"', page)
    assert seen is not None
    change = {"kind": "text", "target": f"{NAME}.remark", "text": "Names are fine.", "seen": seen[1]}
    client.post(f"{review}/change", data={"csrf_token": form_token(client), **change})
    page = client.get(f"/submissions/{submission}").get_data(as_text=True)
    assert "Names are fine." in page
    told = client.get(f"/api/v1/submissions/{submission}", headers=school.token("admin", "read")).get_json()
    assert told["report"]["outputs"][NAME] == {"remark": "Names are fine.", "hints": ["Shorter functions"]}
    assert report_of(system) == report  # it is immutable
    comment = values.words(report, 10, 20, "https://grader.example/1")
    assert f"{REMARK}\n- Shorter functions" in comment


def test_rules_judge_its_criteria(school: School, system: Played) -> None:
    _, report = grade(system, RulesEngine())
    assert {one.criterion: one.points for one in report.criteria}["names"] is not None
    assert report.outputs[NAME] == {"remark": "", "hints": []}


def test_who_drafts_a_rubric_reads_what_it_judges(school: School) -> None:
    asked = rubric_from_model.question("Add.", "", "", ("analysis", NAME), "English")
    assert f"; {NAME} (names, layout and comments). " in asked.system


def test_the_demo_shows_who_did_it(
    school: School, system: Played, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submission, _ = grade(system, Model())
    headers = school.token("admin", "read")
    view = school.client("admin").get(f"/api/v1/submissions/{submission}", headers=headers).get_json()
    without = {**view, "stages": {name: one for name, one in view["stages"].items() if name != NAME}}
    sample = Sample(tmp_path / "work.py", "styled", "s-1", "A", "good")
    _show([(sample, view), (sample, without)])
    assert f"{NAME} by" in capsys.readouterr().out


def test_machines_without_it_need_no_configuration(school: School, root: Path) -> None:
    shipped = tomllib.loads((root / "config.toml").read_text(encoding="utf-8"))
    assert NAME not in Config.model_validate(shipped).stages
