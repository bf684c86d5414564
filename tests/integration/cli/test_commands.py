"""The `grader` command as an administrator uses it, from an empty database to a graded submission."""

from __future__ import annotations

import http.server
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import select

from cli.dev.embedded_redis import free_port
from cli.dev.local_stack import accepts_uploads
from cli.settings import OWN_FOLDER, remember_redis
from grader_client import Client
from grading.store import Store
from grading.store.accounts import users
from grading.store.tables import Assignment, Membership
from tests.support.commands import Grader, in_process
from tests.support.services import SqliteDatabases
from tests.support.system import SECRET_KEY, Site, site, until

CONFIG = """
[server]
port = {port}
[[machines]]
name = "dgx-spark-1"
slots = 4
[machines.stages]
analysis = {{ engine = "rules", model = "rules" }}
feedback = {{ engine = "rules", model = "rules" }}
"""
ASSIGNMENT = "business-analytics/python-basket"


@pytest.fixture
def grader(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Grader:
    """Run a command in this process."""
    return in_process(monkeypatch, capsys)


@pytest.fixture
def empty(
    sqlite_databases: SqliteDatabases, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A configuration whose database is empty; its URL."""
    url = sqlite_databases.fresh()
    (tmp_path / "config.toml").write_text(CONFIG.format(port=free_port()))
    monkeypatch.setenv("GRADER_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("GRADER_DATABASE_URL", url)
    monkeypatch.setenv("GRADER_REDIS_URL", redis_url)
    monkeypatch.setenv("GRADER_SECRET_KEY", SECRET_KEY)
    yield url
    sqlite_databases.drop(url)


@pytest.fixture
def store(empty: str, grader: Grader) -> Iterator[Store]:
    assert grader("db", "upgrade").status == 0
    made = Store(empty)
    yield made
    made.close()


@pytest.fixture
def running(store: Store, redis_url: str, tmp_path: Path) -> Iterator[Site]:
    """The system of the configuration."""
    config = (tmp_path / "config.toml").read_text()
    with site(tmp_path, config, store.engine.url.render_as_string(hide_password=False), redis_url) as made:
        made.parts.start("dgx-spark-1", "worker", "dgx-spark-1")
        made.parts.start("store", "store")
        made.parts.start("sandbox", "sandbox")
        made.parts.start("sweep", "sweep")
        made.parts.start("web", "web", "--var", str(tmp_path))
        made.until_alive("dgx-spark-1")
        until(
            lambda: accepts_uploads(f"http://127.0.0.1:{made.config.server.port}"), 30, "the web app answers"
        )
        yield made


def test_help_is_grouped(grader: Grader) -> None:
    said = grader("--help")
    assert said.status == 0
    sections = ("Run:", "Course work:", "Machines:", "Data:", "Integrations:", "Administration:")
    assert [line for line in said.out.splitlines() if line in sections] == [*sections]


def test_a_command_that_does_not_exist_is_refused(grader: Grader) -> None:
    said = grader("grade")
    assert said.status == 2
    assert "No such command 'grade'" in said.error


def test_a_configuration_that_is_not_there_is_one_sentence(grader: Grader) -> None:
    said = grader("--config", "absent.toml", "machines")
    assert (said.status, said.out) == (1, "")
    assert said.error == "grader: absent.toml does not exist. Name the configuration file with --config.\n"


def test_an_empty_database_is_upgraded_and_again_changes_nothing(
    empty: str, grader: Grader, root: Path
) -> None:
    sample = str(root / "samples/assignments/python-basket")
    early = grader("assignment", "import", sample)
    assert early.status == 1
    assert "grader db upgrade" in early.error
    first = grader("db", "upgrade")
    assert first.status == 0
    assert "revision" in first.out
    assert grader("db", "upgrade") == first


def test_people_and_tokens_are_made(store: Store, grader: Grader, root: Path) -> None:
    assert grader("assignment", "import", str(root / "samples/assignments/python-basket")).status == 0
    person = ("user", "add", "ada", "--name", "Ada", "--password", "a long enough one")
    said = grader(*person, "--role", "instructor", "--course", "business-analytics")
    assert (said.status, said.out) == (0, "Created account 'ada'.\n")
    assert grader(*person).status == 1  # there is one already
    assert grader("user", "add", "bob", "--password", "a long enough one", "--role", "student").status == 2
    with store.read() as session:
        ada = users.find_user(session, "local", "ada")
        assert ada is not None
        assert [m.role for m in session.scalars(select(Membership).where(Membership.user_id == ada.id))] == [
            "instructor"
        ]
    assert grader("user", "break-glass", "ada").status == 1  # without a second factor
    assert "'ada' has no second factor" in grader("user", "reset-second-factor", "ada").out
    token = grader("token", "create", "--user", "ada", "--scope", "read")
    assert token.status == 0
    assert token.out.startswith("grd_")
    nobody = grader("token", "create", "--user", "nobody")
    assert nobody.status == 1
    assert "grader user add" in nobody.error


def test_the_samples_are_imported_once(store: Store, grader: Grader, root: Path, tmp_path: Path) -> None:
    with (tmp_path / "config.toml").open("a") as config:
        config.write('\n[sandbox]\nbackend = "none"\n')
    for folder in sorted((root / "samples/assignments").iterdir()):
        first = grader("assignment", "import", str(folder))
        assert (first.status, first.out.splitlines()[-1].split(": ")[1]) == (0, "version 1 stored")
        assert "⚠ Checks that run code are not counted" in first.out
        assert "version 1 is unchanged" in grader("assignment", "import", str(folder)).out
    with store.read() as session:
        assert set(session.scalars(select(Assignment.slug))) == {"python-basket", "sales-cleaning"}
    (tmp_path / "none").mkdir()
    bad = grader("assignment", "import", str(tmp_path / "none"))
    assert bad.status == 1
    assert "assignment.toml" in bad.error


def of_another_autograder(folder: Path, solution: str, pattern: str) -> Path:
    """An assignment with a rubric that is translated at import."""
    (folder / "starter").mkdir(parents=True)
    (folder / "solution").mkdir()
    (folder / "assignment.toml").write_text(
        'title = "Twice"\nlanguage = "python"\ncourse = "ba"\nrubric = "rubric.json"\n'
    )
    (folder / "starter" / "work.py").write_text("# Task 1.1\n")
    (folder / "solution" / "work.py").write_text(solution)
    task = {"points": 4, "description": "Doubles", "verification": [pattern]}
    part = {"points": 4, "subtasks": {"task_1_1_double": task}}
    section = {"max_points": 4, "description": "Code", "required_sections": {"part1_code": part}}
    (folder / "rubric.json").write_text(json.dumps({"rubric_elements": {"code": section}}))
    return folder


def test_an_import_says_what_solution_and_starter_earn(store: Store, grader: Grader, root: Path) -> None:
    said = grader("assignment", "import", str(root / "samples/assignments/python-basket")).out.splitlines()
    assert said[0].split("  ")[-1].strip() == "starter and one line"
    whole = next(line for line in said if line.startswith("total "))
    assert whole.split() == "total 44 / 44 (100%) 0 / 44 (0%) 2.86 / 44 (6%)".split()
    assert "Not counted, graded by a model or a person: recommendation (6)" in said


def test_a_translated_rubric_that_its_solution_does_not_pass_is_refused(
    store: Store, grader: Grader, tmp_path: Path
) -> None:
    good = of_another_autograder(tmp_path / "good", "# Task 1.1\ndouble(2)\n", "double(")
    assert grader("assignment", "import", str(good)).status == 0
    bad = of_another_autograder(tmp_path / "bad", "# Task 1.1\ntwice(2)\n", "double(")
    said = grader("assignment", "import", str(bad))
    assert said.status == 1
    assert "the solution earns 0% where it must earn 95% or more" in said.error
    assert "task_1_1_double" in said.error
    assert "--force" in said.error
    with store.read() as session:
        assert set(session.scalars(select(Assignment.slug))) == {"good"}
    forced = grader("assignment", "import", str(bad), "--force")
    assert (forced.status, forced.out.splitlines()[-1]) == (0, "ba/bad: version 1 stored")


def test_a_sample_is_submitted_and_graded(
    running: Site, store: Store, grader: Grader, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert grader("assignment", "import", str(root / "samples/assignments/python-basket")).status == 0
    assert grader("user", "add", "admin", "--administrator", "--password", "a long enough one").status == 0
    server = ("--server", f"http://127.0.0.1:{running.config.server.port}")
    file = str(root / "samples/submissions/python-basket/excellent.py")
    submit = ("submit", file, "--assignment", ASSIGNMENT, "--student", "s-1", *server)
    monkeypatch.delenv("GRADER_TOKEN", raising=False)
    without = grader(*submit)
    assert without.status == 1
    assert "GRADER_TOKEN" in without.error
    monkeypatch.setenv("GRADER_TOKEN", grader("token", "create").out.strip())
    said = grader(*submit, "--wait", "--json")
    assert said.status == 0
    view = json.loads(said.out)
    assert view["status"] == "graded"
    assert 0 < view["score"] <= view["max_score"]
    assert {stage["machine"] for stage in view["stages"].values()} == {"dgx-spark-1"}
    assert " graded: " in grader(*submit, "--wait").out
    unknown = grader("submit", file, "--assignment", "business-analytics/none", "--student", "s-1", *server)
    assert unknown.status == 1
    assert unknown.error.startswith("grader: ")

    machines = json.loads(grader("machines", "--json").out)
    (machine,) = machines["machines"]
    assert (machine["name"], machine["alive"], machine["slots"]) == ("dgx-spark-1", True, 4)
    assert machines["queues"]["analysis"] == 0
    assert "dgx-spark-1" in grader("machines").out
    doctor = grader("doctor", "--var", str(running.folder), "--min-free-gb", "0")
    assert doctor.status == 0, doctor
    assert "✓ machine dgx-spark-1 model rules: generated a token in" in doctor.out


def test_without_redis_machines_says_so(
    store: Store, grader: Grader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADER_REDIS_URL", f"redis://127.0.0.1:{free_port()}/0")
    machines = grader("machines", "--json")
    assert machines.status == 1
    assert "Redis does not answer" in machines.error


def test_the_redis_that_up_started_is_found(
    store: Store, redis_url: str, grader: Grader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRADER_REDIS_URL")
    (tmp_path / OWN_FOLDER).mkdir()
    remember_redis(tmp_path / OWN_FOLDER, redis_url)
    said = json.loads(grader("machines", "--json").out)
    assert [machine["alive"] for machine in said["machines"]] == [False]
    monkeypatch.setenv("GRADER_REDIS_URL", f"redis://127.0.0.1:{free_port()}/0")
    assert grader("machines").status == 1


def test_a_server_that_is_away_is_named(
    grader: Grader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grader_client.client.PATIENCE_S", 0.0)
    monkeypatch.setenv("GRADER_TOKEN", "grd_none")
    (tmp_path / "work.R").write_text("mean(sales)")
    server = f"http://127.0.0.1:{free_port()}"
    submit = ("submit", str(tmp_path / "work.R"), "--assignment", ASSIGNMENT, "--student", "s-1")
    said = grader(*submit, "--server", server)
    assert said.status == 1
    assert said.error == f"grader: {server} does not answer: ConnectionError.\n"


def test_what_is_submitted_while_the_server_starts_again_arrives_once(tmp_path: Path) -> None:
    answers, keys = iter([(503, {"Retry-After": "1"}), (502, {}), (202, {})]), []

    class Starting(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            keys.append(self.headers["Idempotency-Key"])
            status, headers = next(answers)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            body = b'{"id": "one"}' if status == 202 else b"<html>away</html>"
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    port = free_port()
    client = Client(f"http://127.0.0.1:{port}", "grd_none")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.submit, {"work.R": b"mean(sales)"}, ASSIGNMENT, "s-1")
        with http.server.HTTPServer(("127.0.0.1", port), Starting) as server:
            server.timeout = 20
            for _ in range(3):
                server.handle_request()
        assert first.result(30) == {"id": "one"}
    assert len(keys) == 3
    assert len(set(keys)) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("db", "upgrade"),
        ("db", "current"),
        ("backup", "x.zip"),
        ("retention",),
        ("token", "create", "--user", "ada"),
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("empty")
def test_a_database_that_is_away_is_one_sentence(
    words: tuple[str, ...], grader: Grader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRADER_DATABASE_URL", f"postgresql://grader:secret@127.0.0.1:{free_port()}/grader")
    said = grader(*words)
    assert said.status == 1
    assert said.error.startswith("grader: The database does not answer (connection failed")
    assert said.error.count("\n") == 1
