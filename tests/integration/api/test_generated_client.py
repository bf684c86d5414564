"""A client generated from the served document, from a new assignment to its export."""

from __future__ import annotations

import importlib
import io
import json
import pkgutil
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from app import create_app
from app.api.routes import ROUTES, Route
from grading.domain.jobs import Job
from tests.integration.api.test_changes import ANOTHER, ASSIGNMENT, COURSE
from tests.integration.client.test_client import Served
from tests.integration.webapp import CODE, School
from tests.support.aging import Played, played
from workers.machine.engines.rules.engine import RulesEngine
from workers.machine.stages import run_stage
from workers.server import record

NAME = "generated_client"
CONFIG = {"post_hooks": [], "content_type_overrides": {"application/zip": "application/octet-stream"}}
"""The code is not formatted, and a zip is bytes."""
RUBRIC = {
    "criteria": [
        {"id": "load", "title": "Loads the data", "points": 4},
        {"id": "think", "title": "Thinks about it", "points": 6, "stage": "feedback"},
    ]
}
VALUES: dict[str, Any] = {
    **ASSIGNMENT,
    **COURSE,
    "code_editor": True,
    "name": "Ada",
    "email": "ada@school.example",
    "administrator": True,
    "disabled": True,
    "role": "grader",
    "members": [{"user_id": 1, "group": "a"}],
}
"""A value for each field that a PATCH has."""
PATCHES = [route for route in ROUTES if route.method == "PATCH"]


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Iterator[School]:
    made = School(tmp_path_factory.mktemp("school"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def served(school: School) -> Iterator[Served]:
    made = Served(school.app)
    yield made
    made.close()


@pytest.fixture(scope="module")
def package(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The client, made by a process of its own; a warning would be an error."""
    folder = tmp_path_factory.mktemp("client")
    with urllib.request.urlopen(f"{served.url}/api/v1/openapi.json") as answer:
        (folder / "openapi.json").write_bytes(answer.read())
    (folder / "config.json").write_text(json.dumps(CONFIG))
    command = [
        sys.executable,
        "-m",
        "openapi_python_client",
        "generate",
        "--meta",
        "none",
        "--fail-on-warning",
    ]
    command += ["--path", "openapi.json", "--config", "config.json", "--output-path", NAME]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    yield importlib.import_module(NAME)
    sys.path.remove(str(folder))
    for name in [one for one in sys.modules if one.partition(".")[0] == NAME]:
        del sys.modules[name]


class Program:
    """Somebody's program: operations by their names, and how they were answered."""

    def __init__(self, package: ModuleType, served: Served, header: dict[str, str]) -> None:
        token = header["Authorization"].removeprefix("Bearer ")
        self.client = package.AuthenticatedClient(served.url, token, raise_on_unexpected_status=True)
        self.modules = {route.name: f"{NAME}.api.{route.tag}.{route.name}" for route in ROUTES}

    def ask(self, operation: str, *place: Any, **sent: Any) -> Any:
        module = importlib.import_module(self.modules[operation])
        return module.sync_detailed(*place, client=self.client, **sent)

    def __call__(self, operation: str, *place: Any, **sent: Any) -> Any:
        answer = self.ask(operation, *place, **sent)
        assert answer.status_code < 300, answer.content
        return answer.parsed


@pytest.fixture
def teacher(package: ModuleType, served: Served, school: School) -> Iterator[Program]:
    made = Program(package, served, school.token("teacher", "read", "submit", "grade", "manage"))
    with made.client:
        yield made


@pytest.fixture
def models(package: ModuleType) -> ModuleType:
    return importlib.import_module(f"{NAME}.models")


def file(package: ModuleType, name: str, data: bytes) -> Any:
    types = importlib.import_module(f"{package.__name__}.types")
    return types.File(payload=io.BytesIO(data), file_name=name, mime_type="application/octet-stream")


def test_every_module_can_be_imported(package: ModuleType) -> None:
    names = [one.name for one in pkgutil.walk_packages(package.__path__, f"{NAME}.")]
    assert {name.rpartition(".")[2] for name in names} >= {route.name for route in ROUTES}
    for name in names:
        importlib.import_module(name)


@pytest.fixture
def graded_school(redis_url: str, root: Path, tmp_path: Path) -> Iterator[tuple[School, Played]]:
    """A school with all that grades but the processes: queues, the sweeper, the stages of a machine."""
    school = School(tmp_path)
    with played(f"sqlite:///{tmp_path / 'grader.db'}", redis_url, root) as system:
        own = {"config": system.server.config, "dispatch": system.server.dispatch}
        school.app = create_app(replace(school.services, **own))
        yield school, system
    school.close()


def waited(anna: Program, system: Played, submission: str) -> list[str]:
    """What a student reads until it is graded by the rules engine."""
    states = [anna("status", submission).status]
    system.pass_time()
    system.heartbeat()
    system.sweeper.step()
    states.append(anna("status", submission).status)
    jobs = [Job.model_validate(job) for job in system.messages()]
    engine = RulesEngine()
    record.record(
        system.server, [run_stage(job, engine, "rules", "dgx-spark-1", lambda *_: None) for job in jobs]
    )
    return [*states, anna("status", submission).status]


def test_from_an_assignment_to_its_export(
    graded_school: tuple[School, Played], package: ModuleType, models: ModuleType
) -> None:
    school, system = graded_school
    served = Served(school.app)
    teacher = Program(package, served, school.token("teacher", "read", "submit", "grade", "manage"))
    anna = Program(package, served, school.token("anna", "read", "submit"))
    try:
        with teacher.client, anna.client:
            walk(school.course, system, package, models, teacher, anna)
    finally:
        served.close()


def walk(
    course: int, system: Played, package: ModuleType, models: ModuleType, teacher: Program, anna: Program
) -> None:
    due = datetime.now(UTC) + timedelta(days=7)
    new = models.NewAssignment(title="Basket", slug="basket", language="python", due=due)
    made = teacher("create_assignment", course, body=new).id
    put_material(package, models, teacher, made)
    put_rubric(models, teacher, made)
    assert [one.path for one in anna("offered_files", made).items] == ["data/sales.csv"]
    assert anna("offered_file", made, "data/sales.csv").payload.read() == b"day,sales\n"

    submission = submitted(package, models, anna)
    assert waited(anna, system, submission) == ["received", "running", "graded"]
    assert anna.ask("result", submission).parsed.code == "not_found"
    result = teacher("result", submission)
    assert [(one.criterion, one.stage) for one in result.criteria] == [
        ("load", "analysis"), ("think", "feedback")
    ]  # fmt: skip
    assert listed(models, teacher, made, released=False) == [submission]
    assert listed(models, teacher, made, released=True) == []
    assert teacher("release", submission).released
    assert listed(models, teacher, made, released=True) == [submission]
    assert anna("result", submission).score == result.score == sum(one.points for one in result.criteria)
    exported(teacher, made, result.score)


def put_material(package: ModuleType, models: ModuleType, teacher: Program, assignment: int) -> None:
    """Data and tests, one state after the other."""
    seen = teacher.ask("material", assignment).headers["ETag"]
    for folder, name, data in (("data", "sales.csv", b"day,sales\n"), ("tests", "tests.py", b"x = 1\n")):
        upload = models.MaterialUpload(
            folder=models.MaterialUploadFolder(folder), files=[file(package, name, data)]
        )
        answer = teacher.ask("put_material", assignment, body=upload, if_match=seen)
        assert answer.status_code == 200, answer.content
        seen = answer.headers["ETag"]
    paths = {one.path for one in teacher("material", assignment).items}
    assert paths == {"data/sales.csv", "tests/tests.py"}
    assert teacher("material_file", assignment, "tests/tests.py").payload.read() == b"x = 1\n"


def put_rubric(models: ModuleType, teacher: Program, assignment: int) -> None:
    newest = models.RubricWhich("newest")
    seen = teacher.ask("rubric", assignment, which=newest).headers["ETag"]
    rubric = models.NewRubric(rubric=models.NewRubricRubric.from_dict(RUBRIC), publish=True)
    assert teacher("put_rubric", assignment, body=rubric, if_match=seen).published
    again = teacher.ask("put_rubric", assignment, body=rubric, if_match=seen)
    assert (again.status_code, again.parsed.code) == (412, "changed_meanwhile")


def submitted(package: ModuleType, models: ModuleType, anna: Program) -> str:
    """The id of one submission, however often it is sent."""
    ids = set()
    for _ in range(2):
        upload = models.SubmissionUpload(
            assignment="ba/basket", student="anna", files=[file(package, "work.py", CODE)]
        )
        ids.add(anna("submit", body=upload, idempotency_key="basket-anna-1").id)
    (submission,) = ids
    return str(submission)


def listed(models: ModuleType, teacher: Program, assignment: int, *, released: bool) -> list[str]:
    """Ids in a list with filters."""
    since = datetime.now(UTC) - timedelta(days=1)
    status = models.SubmissionsStatus("graded")
    page = teacher("submissions", assignment=assignment, status=status, released=released, since=since)
    assert page.next_ is None
    ids = [one.id for one in page.items]
    same = teacher("submissions", id=ids, released=released, sort=models.SubmissionsSort("oldest")).items
    assert [one.id for one in same if one.assignment_id == assignment] == ids
    return ids


def exported(teacher: Program, assignment: int, score: float) -> None:
    row = next(row for row in teacher("assignment_table", assignment).splitlines() if "anna" in row)
    assert f"{score:g}" in row.split(",")
    with zipfile.ZipFile(teacher("everything", assignment).payload) as archive:
        assert any(name.endswith("work.py") for name in archive.namelist())


@pytest.mark.parametrize("route", PATCHES, ids=[route.name for route in PATCHES])
def test_a_change_sends_what_it_names(models: ModuleType, route: Route) -> None:
    assert route.body is not None
    model, fields = getattr(models, route.body.__name__), route.body.model_fields
    needed = {name: VALUES[name] for name, field in fields.items() if field.is_required()}
    for name in fields:
        assert set(model.from_dict({**needed, name: VALUES[name]}).to_dict()) == {*needed, name}


def test_a_change_of_one_field_leaves_the_others(
    school: School, models: ModuleType, teacher: Program
) -> None:
    new = models.NewAssignment.from_dict({**ASSIGNMENT, "slug": "changed"})
    made = teacher("create_assignment", school.course, body=new).id
    before = teacher("assignment", made).to_dict()
    for name, value in ANOTHER.items():
        change = models.AssignmentChange.from_dict({name: value})
        after = teacher("change_assignment", made, body=change, if_match="*").to_dict()
        assert after == {**before, name: after[name], "path": after["path"]}
        assert after[name] != before[name]
        before = after
