"""An engine that another package brings: installed, found by its entry point, used by a worker."""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from redis import Redis
from sqlalchemy import select

from app import Services, create_app
from app.web.auth import SignedIn
from cli.deploy.models import Wanted, wanted
from cli.doctor.machines import unknown_engines
from grading.broker.kept_digests import KeptDigests
from grading.config.machines import EngineSettings, Machine, Placement
from grading.domain.errors import ConfigError
from grading.domain.report import Report
from grading.store import schema
from grading.store.accounts import sessions, users
from grading.store.tables import Grade
from tests.support.factories import add_assignment, submit
from tests.support.services import SqliteDatabases
from tests.support.system import Site, site, until
from workers.machine.engines import known_engines, open_engines
from workers.machine.engines.base import knows_loading
from workers.machine.gateway_requests.serving import queues_of
from workers.machine.model_digests import ModelDigests

OWN = {"rules", "instant", "ollama", "openai", "mlx", "hybrid", "sharded"}
COUNTED = 'grader_engine_smallest_answers_total{engine="smallest",machine="dgx-spark-1"} 2.0'
CONFIG = """
[[machines]]
name = "dgx-spark-1"
slots = 2
[machines.engines.smallest.options]
label = "from elsewhere"
[machines.stages]
analysis = { engine = "smallest", model = "none" }
feedback = { engine = "smallest", model = "none" }
"""


def machine(engine: str, **options: str) -> Machine:
    stages = {"analysis": Placement(engine=engine, model="none")}
    return Machine(name="one", stages=stages, engines={engine: EngineSettings(options=options)})


def browsers(site: Site) -> tuple[FlaskClient, FlaskClient]:
    """Clients of the web app: of nobody, and of the administrator."""
    app = create_app(Services(site.config, site.store, site.dispatch, secret_key="only for tests"))
    visitor, administrator = app.test_client(), app.test_client()
    with site.store.write() as session, administrator.session_transaction() as cookie:
        user = users.find_user(session, "local", "admin")
        assert user is not None
        found = users.load_reader(session, user.id)
        assert found is not None
        cookie["_user_id"] = SignedIn(found, sessions.create_session(session, user.id)).get_id()
        cookie["_fresh"] = True
    return visitor, administrator


def token(site: Site) -> dict[str, str]:
    """The header of a new token of the administrator."""
    with site.store.write() as session:
        user = users.find_user(session, "local", "admin")
        assert user is not None
        made = users.create_token(session, user.id, "test", ["read"], timedelta(hours=1))
    return {"Authorization": f"Bearer {made.secret}"}


@pytest.fixture(scope="module")
def installed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, as pip installs it."""
    source = tmp_path_factory.mktemp("source") / "smallest_engine"
    shutil.copytree(root / "tests" / "packages" / "smallest_engine", source)
    target = tmp_path_factory.mktemp("target")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(target), str(source)], check=True, timeout=120)
    return target


def test_the_engines_of_this_tree_are_announced_like_any_other() -> None:
    assert known_engines().keys() >= OWN
    assert {entry.load().name for name, entry in known_engines().items() if name in OWN} == OWN


def test_an_unknown_engine_is_named_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"engines\.smallest: there is no such engine here; .*mlx"):
        open_engines(machine("smallest"))
    (finding,) = unknown_engines("machine one", machine("smallest"))
    assert "'smallest' of config.toml is unknown" in finding.message
    assert not list(unknown_engines("machine one", machine("rules")))


def test_settings_are_those_of_the_engine(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(installed)
    assert open_engines(machine("smallest", label="x"))["smallest"].name == "smallest"
    with pytest.raises(ConfigError, match=r"engines\.smallest\.label: is missing"):
        open_engines(machine("smallest"))
    with pytest.raises(ConfigError, match=r"engines\.smallest\.lable: no such setting; there are: label"):
        open_engines(machine("smallest", lable="x"))


def test_what_others_know_of_an_engine_it_says_itself(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its class says it to the machine and to `grader deploy`, heartbeats to the server and the gateway."""
    monkeypatch.syspath_prepend(installed)
    without, listed = machine("smallest", label="x"), machine("listed", label="x")
    assert wanted(without) == []
    assert wanted(listed) == [Wanted("listed", "server", "none")]
    assert wanted(machine("of-another-computer")) == []
    for one, source, queues, knows in ((without, "none", 0, True), (listed, "server", 2, False)):
        engines = open_engines(one)
        told = ModelDigests(one, engines, KeptDigests(Redis(), one.name)).stages()
        assert {place["source"] for place in told.values()} == {source}
        assert len(queues_of(one, engines)) == queues
        assert {knows_loading(engine) for engine in engines.values()} == {knows}


def test_a_package_that_is_broken_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = tmp_path / "broken-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[grader.engines]\nbroken = nowhere:Engine\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"engines\.broken: nowhere:Engine cannot be imported"):
        open_engines(machine("broken"))


def test_a_worker_grades_with_it(
    installed: Path, sqlite_databases: SqliteDatabases, redis_url: str, tmp_path: Path
) -> None:
    with site(tmp_path, CONFIG, sqlite_databases.fresh(schema.upgrade), redis_url) as made:
        made.parts.start("store", "store")
        path = ("env", f"PYTHONPATH={installed}")
        made.parts.start("one", "worker", "dgx-spark-1", prefix=path)
        made.until_alive("dgx-spark-1")
        with made.store.write() as session:
            users.ensure_administrator(session)
        accepted = submit(made.store, add_assignment(made.store, release="at_once"), "s-1")
        assert made.dispatch.announce(accepted.round_id)
        made.until_final(1, 90)
        with made.store.read() as session:
            report = Report.model_validate(session.scalars(select(Grade.report)).one())
        visitor, administrator = browsers(made)
        until(lambda: COUNTED in visitor.get("/metrics").text, 30, "a heartbeat counts both answers")
        metrics = visitor.get("/metrics").text
        page = administrator.get(f"/submissions/{accepted.submission_id}").text
        answer = visitor.get(f"/api/v1/submissions/{accepted.submission_id}", headers=token(made))
    told = answer.json["report"]["stages"]["feedback"]["details"]["size_of_answer"]
    length = told["values"]["answer_length"]
    assert told["strategy"] == "minimal"
    assert length["unit"] == "characters"
    assert told["reason"]["message"] == "Nothing shorter follows the schema."
    for text in (
        "size of answer",
        "minimal",
        "answer length",
        f"{length['value']} characters",
        "Nothing shorter",
    ):
        assert text in page
    assert "# HELP grader_engine_smallest_answers_total Answers as small as can be." in metrics
    assert {(one.engine, one.digest) for one in report.stages.values()} == {("smallest", "from elsewhere")}
