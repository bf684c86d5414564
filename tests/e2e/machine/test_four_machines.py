"""The four machines of the cluster, each started on its own: two stages at once, on two machines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from bench.tiny_models import make_model
from cli.dev.embedded_redis import free_port, start_redis
from cli.dev.local_stack import accepts_uploads
from grader_client import Client
from grading.domain.jobs import Provenance
from grading.domain.report import Report
from grading.store import schema
from grading.store.assignments import versions
from grading.store.assignments.versions import NewVersion
from grading.store.tables import Grade, Round, Run
from tests.support.engines import SMALLER
from tests.support.factories import COURSE, RUBRIC, document
from tests.support.servers.base import ModelServer
from tests.support.servers.ollama_server import digest_of, ollama_server
from tests.support.services import SqliteDatabases
from tests.support.system import ASSIGNMENT, Site, assert_graded_once, count_final, furnish, site, until

CONFIG = """
[server]
port = {port}
[stages.analysis]
max_output_tokens = 400
[stages.feedback]
max_output_tokens = 400

[[machines]]
name = "dgx-spark-1"
role = "primary"
[machines.engines.ollama]
url = "{ollama[0]}"
[machines.stages]
analysis = {{ engine = "ollama", model = "qwen3-coder:30b" }}

[[machines]]
name = "mac-studio-1"
role = "primary"
[machines.engines.mlx]
[machines.stages]
feedback = {{ engine = "mlx", model = "{mlx}" }}

[[machines]]
name = "dgx-spark-2"
role = "spare"
slots = 2
[machines.engines.ollama]
url = "{ollama[1]}"
[machines.stages]
analysis = {{ engine = "ollama", model = "qwen3-coder:30b" }}
feedback = {{ engine = "ollama", model = "gemma3:27b" }}

[[machines]]
name = "mac-studio-2"
role = "spare"
slots = 2
[machines.engines.mlx]
[machines.stages]
feedback = {{ engine = "mlx", model = "{mlx}" }}
analysis = {{ engine = "mlx", model = "{mlx}" }}
"""
MODELS = ("qwen3-coder:30b", "gemma3:27b")
SECONDS = 2.5
"""How long the Ollama servers take for an answer; the small models take about a second."""
PRIMARY = ("dgx-spark-1", "mac-studio-1")
ATTEMPTS = 3
"""On a busy computer a primary machine's heartbeat may be so late that a spare takes a run, as it should."""
WORK = """# The mean is far above the median, so a few sales are very large.
sales <- read.csv("sales.csv")
mean(sales$amount); median(sales$amount)
"""


@dataclass(frozen=True)
class Cluster:
    """Everything runs; `model` is the folder of the Macs' model, `ollama` the servers of the Sparks."""

    site: Site
    client: Client
    model: str
    ollama: tuple[ModelServer, ModelServer]

    def submit(self, student: str) -> str:
        accepted = self.client.submit({"work.R": WORK.encode()}, ASSIGNMENT, student)
        return str(accepted["id"])

    def begun(self, submission: str) -> bool:
        """Whether each stage has been taken by a machine."""
        return all(stage["machine"] for stage in self.client.submission(submission)["stages"].values())

    def done(self, submission: str) -> Done:
        with self.site.store.read() as session:
            current = session.scalars(select(Round).where(Round.submission_id == submission)).one()
            runs = session.scalars(select(Run).where(Run.round_id == current.id)).all()
            grade = session.scalars(select(Grade).where(Grade.round_id == current.id)).one()
        assert len(runs) == 2
        assert current.finished_at is not None
        return Done(current, {run.stage: run for run in runs}, Report.model_validate(grade.report))


@dataclass(frozen=True)
class Done:
    """What SQL says of a graded submission."""

    round: Round
    runs: dict[str, Run]
    report: Report

    @property
    def machines(self) -> tuple[str, str]:
        """Who did analysis and feedback."""
        return self.report.stages["analysis"].machine, self.report.stages["feedback"].machine

    @property
    def longer_s(self) -> float:
        """Seconds of the stage that took longer."""
        return max(provenance.seconds for provenance in self.report.stages.values())

    @property
    def shorter_s(self) -> float:
        """Seconds of the other one."""
        return min(provenance.seconds for provenance in self.report.stages.values())

    @property
    def total_s(self) -> float:
        """Seconds from the accepted upload to the stored grade."""
        assert self.round.finished_at is not None
        return (self.round.finished_at - self.round.created_at).total_seconds()

    @property
    def at_once(self) -> bool:
        """Whether neither stage was sent only when the other one had ended."""
        ended = [run.finished_at for run in self.runs.values() if run.finished_at is not None]
        return len(ended) == 2 and max(run.dispatched_at for run in self.runs.values()) < min(ended)

    @property
    def overlap_s(self) -> float:
        """For how long both stages were under way."""
        intervals = [_interval(self.runs[s], p) for s, p in self.report.stages.items()]
        start, end = max(i[0] for i in intervals), min(i[1] for i in intervals)
        return (end - start).total_seconds()


def _interval(run: Run, provenance: Provenance) -> tuple[datetime, datetime]:
    assert run.finished_at is not None
    return run.finished_at - timedelta(seconds=provenance.seconds), run.finished_at


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, sqlite_databases: SqliteDatabases) -> Iterator[Cluster]:
    folder, port = tmp_path_factory.mktemp("cluster"), free_port()
    model = str(make_model(folder / "model", shape=SMALLER, context=32768))
    with (
        start_redis(folder / "redis") as redis,
        ollama_server(MODELS, SECONDS) as first,
        ollama_server(MODELS, SECONDS) as second,
    ):
        config = CONFIG.format(port=port, ollama=(first.url, second.url), mlx=model)
        with site(folder, config, sqlite_databases.fresh(schema.upgrade), redis.url) as made:
            for machine in made.config.machines:
                made.parts.start(machine.name, "worker", machine.name)
            made.parts.start("web", "web", "--var", str(folder))
            made.parts.start("store", "store")
            made.parts.start("sweep", "sweep")
            url = f"http://127.0.0.1:{port}"
            client = furnish(made.store, url)
            made.until_alive(*(machine.name for machine in made.config.machines))
            until(lambda: accepts_uploads(url), 30, "the web app answers")
            yield Cluster(made, client, model, (first, second))


def expect_provenance(cluster: Cluster, provenance: dict[str, Any], model: str) -> None:
    on_mac = provenance["machine"].startswith("mac")
    assert provenance["engine"] == ("mlx" if on_mac else "ollama")
    assert provenance["model"] == (cluster.model if on_mac else model)
    assert digest_of(model) in provenance["digest"] or provenance["digest"].startswith("sha256:")
    assert provenance["tokens"]["prompt"] > 100
    assert provenance["tokens"]["output"] > 0
    assert 0 < provenance["first_token_s"] < provenance["seconds"]
    assert provenance["prompt_hash"]
    assert provenance["uses_model"]


def _submit_by_command(cluster: Cluster, work: Path, student: str) -> dict[str, Any]:
    command = ["submit", str(work), "--assignment", ASSIGNMENT, "--student", student]
    parts = cluster.site.parts
    options = ["--wait", "--json", "--server", cluster.client.url]
    name = f"submit-{student}"
    parts.start(name, *command, *options, environ={"GRADER_TOKEN": cluster.client.token})
    assert parts.running.pop(name).wait(90) == 0
    written = (cluster.site.folder / f"{name}.log").read_text(encoding="utf-8")
    view = json.loads(written[written.index("{") :])  # it may have said before that it tries again
    assert isinstance(view, dict)
    return view


def test_one_submission_is_done_by_the_two_primary_machines_at_once(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "work.R").write_text(WORK)
    for attempt in range(ATTEMPTS):
        view = _submit_by_command(cluster, tmp_path / "work.R", f"first-{attempt}")
        done = cluster.done(view["id"])
        if done.machines == PRIMARY:
            break
    assert view["status"] == "graded"
    assert done.machines == PRIMARY
    print(f"total {done.total_s:.2f} s, longer stage {done.longer_s:.2f} s, overlap {done.overlap_s:.2f} s")
    assert all(one.seconds >= SECONDS for one in done.report.stages.values() if one.engine == "ollama")
    assert done.at_once
    for stage, model in zip(("analysis", "feedback"), MODELS, strict=True):
        expect_provenance(cluster, view["report"]["stages"][stage], model)
        assert view["stages"][stage]["machine"] == done.runs[stage].machine


def test_a_rehearsal_does_a_class_on_every_machine_and_stage(cluster: Cluster) -> None:
    rehearsed = NewVersion("again", "Again", "r", "at_once", "2", rubric=RUBRIC, solution=(document(WORK),))
    with cluster.site.store.write() as session:
        versions.import_version(session, COURSE, rehearsed)
        before = session.query(Run).count()
    parts = cluster.site.parts
    parts.start("strategies", "doctor", "--strategies", "--json")  # no machine has one, and each says so
    assert parts.running.pop("strategies").wait(120) == 0
    said = (cluster.site.folder / "strategies.log").read_text(encoding="utf-8")
    assert json.loads(said[said.index("{") :]) == {"strategies": [], "notes": [], "silent": []}
    parts.start("rehearse", "rehearse", f"{COURSE}/again", "--runs", "2", "--json")
    assert parts.running.pop("rehearse").wait(120) == 0
    written = (cluster.site.folder / "rehearse.log").read_text(encoding="utf-8")
    found = json.loads(written[written.index("{") :])
    assert (found["silent"], found["weights"]) == ([], [])
    assert found["class_seconds"] > 0
    stages = {(one["machine"], one["stage"]): one for one in found["stages"]}
    assert len(stages) == 6
    for (machine, _), one in stages.items():
        assert (one["runs"], one["succeeded"]) == (2, 2), one
        assert one["digest"]
        assert one["output_tokens_s"] > 0
        assert one["model"] == cluster.model if machine.startswith("mac") else one["model"] in MODELS
        assert not any("failed" in sentence for sentence in one["change"])
    assert stages["mac-studio-2", "feedback"]["together"] == 2
    assert stages["mac-studio-2", "feedback"]["cached"] > 0  # the second run reads what the first one shares
    with cluster.site.store.read() as session:
        assert session.query(Run).count() == before  # nothing is recorded


@pytest.mark.soak
def test_one_submission_takes_as_long_as_its_longer_stage(cluster: Cluster) -> None:
    """On a machine with nothing else to do: seconds are no measure beside other tests."""
    submission = cluster.submit("s-alone")
    assert cluster.client.wait(submission, 90)["status"] == "graded"
    done = cluster.done(submission)
    assert done.overlap_s > 0.7 * done.shorter_s
    # waiting, checks, transport and combining
    assert done.total_s <= done.longer_s * 1.1 + 0.5


def test_two_submissions_at_once_use_the_spares_and_two_machines_each(cluster: Cluster) -> None:
    """More than the primary machines have slots for, and so few that there is always another machine."""
    sparks = cluster.ollama
    with sparks[0].holding(), sparks[1].holding():  # so that a primary machine cannot do one after the other
        submitted = [cluster.submit(f"s-{number}") for number in range(2, 4)]
        until(lambda: all(map(cluster.begun, submitted)), 90, "machines are at all four runs")
    for submission in submitted:
        assert cluster.client.wait(submission, 90)["status"] == "graded"
    done = [cluster.done(submission) for submission in submitted]
    for one in done:
        assert one.machines[0] != one.machines[1]
        for stage, model in zip(("analysis", "feedback"), MODELS, strict=True):
            expect_provenance(cluster, one.report.stages[stage].model_dump(mode="json"), model)
    busy = {machine for one in done for machine in one.machines}
    assert busy & {machine.name for machine in cluster.site.config.machines if machine.role == "spare"}
    print([(one.machines, round(one.total_s, 2), round(one.longer_s, 2)) for one in done])
    assert_graded_once(cluster.site.store, count_final(cluster.site.store))
