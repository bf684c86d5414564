"""`grader doctor` on set-ups that are broken on purpose: each fault is named, with its remedy."""

from __future__ import annotations

import json
import tomllib
import venv
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from redis import Redis
from sqlalchemy import text

from cli.dev.embedded_redis import free_port
from cli.doctor import database as database_checks
from cli.doctor.server import STUDENTS_PYTHON
from cli.main import grader
from cli.settings import forget_redis, remember_redis
from grading.broker.canaries import CANARIES
from grading.broker.heartbeats import Heartbeat
from grading.broker.leases import Leases, connect
from grading.domain.errors import GraderError
from grading.store import Store, schema
from tests.support.redis_servers import certificates, redis_server
from tests.support.servers.base import Behaviour, ModelServer
from tests.support.servers.ollama_server import OllamaHandler, ollama_server
from tests.support.servers.openai_server import openai_server
from tests.support.services import SqliteDatabases
from tests.support.system import Site, site

ONE = """
[[machines]]
name = "one"
slots = 2
[machines.stages]
analysis = { engine = "instant", model = "m" }
feedback = { engine = "instant", model = "m" }
"""
SECRET = "long enough for a test"


@dataclass
class Case:
    """A set-up that is well but for machines and parts; each test breaks one thing more."""

    folder: Path
    environ: dict[str, str]
    toml: str = ONE
    arguments: list[str] = field(default_factory=list)

    def doctor(self) -> dict[str, dict[str, str]]:
        """What the doctor says, by check; of several findings the worst."""
        (self.folder / "config.toml").write_text(self.toml)
        said = self.run("--json")
        assert isinstance(said.exception, GraderError), said.exception
        found: dict[str, dict[str, str]] = {}
        order = ["ok", "warning", "failure"]
        for finding in json.loads(said.stdout)["findings"]:
            before = found.get(finding["check"], {"level": "ok"})
            if order.index(finding["level"]) >= order.index(before["level"]):
                found[finding["check"]] = finding
        return found

    def run(self, *arguments: str) -> Any:
        options = ["--config", str(self.folder / "config.toml"), "doctor", "--var", str(self.folder)]
        return CliRunner(env=self.environ).invoke(grader, [*options, *self.arguments, *arguments])


@pytest.fixture
def case(tmp_path: Path, redis_url: str, sqlite_databases: SqliteDatabases) -> Case:
    urls = {"GRADER_REDIS_URL": redis_url, "GRADER_DATABASE_URL": sqlite_databases.fresh(schema.upgrade)}
    return Case(tmp_path, {**urls, "GRADER_SECRET_KEY": SECRET}, arguments=["--min-free-gb", "0"])


# --- Redis --------------------------------------------------------------------------------------------

Break = Callable[[Case, ExitStack], None]


def _own_redis(*settings: str, url: str = "redis://:right@127.0.0.1:{port}/0") -> Break:
    def do(case: Case, stack: ExitStack) -> None:
        lines = ("requirepass right", "appendonly yes", *settings)
        port = stack.enter_context(redis_server(case.folder / "redis", *lines))
        case.environ["GRADER_REDIS_URL"] = url.format(port=port)

    return do


def _nearly_full(case: Case, stack: ExitStack) -> None:
    _own_redis("maxmemory 100mb")(case, stack)
    with Redis.from_url(case.environ["GRADER_REDIS_URL"]) as client:
        client.setrange("what fills it", 84_000_000, "x")


def _no_redis(case: Case, _stack: ExitStack) -> None:
    case.environ["GRADER_REDIS_URL"] = f"redis://127.0.0.1:{free_port()}/0"


def _open_redis(case: Case, stack: ExitStack) -> None:
    port = stack.enter_context(redis_server(case.folder / "redis", "appendonly yes"))
    case.environ["GRADER_REDIS_URL"] = f"redis://127.0.0.1:{port}/0"


def _expired(case: Case, stack: ExitStack) -> None:
    tls = certificates(case.folder / "tls", ends="20200201000000Z")
    port = stack.enter_context(redis_server(case.folder / "redis", "requirepass right", tls=tls))
    case.environ["GRADER_REDIS_URL"] = f"rediss://:right@localhost:{port}/0?ssl_ca_certs={tls.ca}"


def _somebody_elses(case: Case, stack: ExitStack) -> None:
    tls, other = certificates(case.folder / "tls"), certificates(case.folder / "other")
    port = stack.enter_context(redis_server(case.folder / "redis", "requirepass right", tls=tls))
    case.environ["GRADER_REDIS_URL"] = f"rediss://:right@localhost:{port}/0?ssl_ca_certs={other.ca}"


def _passwordless_url(case: Case, _stack: ExitStack) -> None:
    case.environ["GRADER_REDIS_URL"] = "redis://10.0.0.5:6379/0"


# --- configuration, database, computer ----------------------------------------------------------------


def _unknown_keys(case: Case, _stack: ExitStack) -> None:
    case.toml += "\n[server]\nprot = 80\n"


def _short_secret(case: Case, _stack: ExitStack) -> None:
    case.environ["GRADER_SECRET_KEY"] = "short"


def _secret_for_all(case: Case, _stack: ExitStack) -> None:
    del case.environ["GRADER_SECRET_KEY"]
    (case.folder / "secret_key").write_text(SECRET)
    (case.folder / "secret_key").chmod(0o644)


def _no_canvas_token(case: Case, _stack: ExitStack) -> None:
    case.toml += '\n[[server.canvases]]\nname = "cv"\nurl = "https://canvas.example"\n'


def _no_lms_secret(case: Case, _stack: ExitStack) -> None:
    case.toml += '\n[server.lms_connections]\nmoodle = ["*"]\n'


def _bare_python(case: Case, _stack: ExitStack) -> None:
    venv.create(case.folder / "bare", with_pip=False)
    case.toml = f'[sandbox]\npython = "{case.folder}/bare/bin/python"\n{case.toml}'


def _no_mail(case: Case, _stack: ExitStack) -> None:
    case.toml += f'\n[mail]\nurl = "smtp://127.0.0.1:{free_port()}"\nsender = "g@school.example"\n'


def _no_database(case: Case, _stack: ExitStack) -> None:
    case.environ["GRADER_DATABASE_URL"] = f"sqlite:///{case.folder}/none.db"


def _database_away(case: Case, _stack: ExitStack) -> None:
    case.environ["GRADER_DATABASE_URL"] = f"postgresql://grader@127.0.0.1:{free_port()}/grader"


def _old_tables(case: Case, _stack: ExitStack) -> None:
    schema.downgrade(case.environ["GRADER_DATABASE_URL"], "base")


def _newer_tables(case: Case, _stack: ExitStack) -> None:
    with closing(Store(case.environ["GRADER_DATABASE_URL"])) as store, store.write() as session:
        session.execute(text("update alembic_version set version_num = '9999'"))


def _low_disk(case: Case, _stack: ExitStack) -> None:
    case.arguments = ["--min-free-gb", "1000000"]


def _clock(_case: Case, stack: ExitStack) -> None:
    patch = stack.enter_context(pytest.MonkeyPatch.context())
    patch.setattr(database_checks, "Store", partial(Store, clock_offset_s=3600.0))


# --- machines as Redis knows them ---------------------------------------------------------------------


def _heartbeat(case: Case, machine: str = "one", *, busy: int = 0, digest: str = "", **more: Any) -> None:
    place = {"engine": "instant", "model": "m"} | ({"digest": digest} if digest else {})
    stages = dict.fromkeys(("analysis", "feedback"), place)
    client = connect(case.environ["GRADER_REDIS_URL"])
    Leases(client).heartbeat(Heartbeat(f"process of {machine}", machine, 2, busy, stages, **more))
    client.close()


def _gone(_case: Case, _stack: ExitStack) -> None:
    """Nothing was started."""


def _busy(case: Case, _stack: ExitStack) -> None:
    _heartbeat(case, busy=2)


def _hung(case: Case, _stack: ExitStack) -> None:
    _heartbeat(case)
    client = connect(case.environ["GRADER_REDIS_URL"])
    moment = client.time()[0] * 1000
    row = {"sent": moment, "since": moment - 90_000}
    client.hset(CANARIES, "machine.one", json.dumps(row))
    client.close()


def _engine_away(case: Case, _stack: ExitStack) -> None:
    away = {"state": "probing", "why": "Start it.", "since_s": 61.2, "stages": ["feedback"]}
    _heartbeat(case, busy=2, circuits={"instant": away})


def _drained(case: Case, _stack: ExitStack) -> None:
    _heartbeat(case, busy=2, drained=True)


def _other_weights(case: Case, _stack: ExitStack) -> None:
    """Machines that are too busy to be examined, one of them with other weights."""
    case.toml += ONE.replace('"one"', '"two"') + ONE.replace('"one"', '"three"')
    for name, digest in (("one", "sha256:ab"), ("two", "ab"), ("three", "sha256:cd")):
        _heartbeat(case, name, busy=2, digest=digest)


def _stranger(case: Case, _stack: ExitStack) -> None:
    _heartbeat(case, busy=2)
    _heartbeat(case, "unknown-machine")


@pytest.mark.parametrize(
    ("do", "check", "level", "message", "remedy"),
    [
        (_no_redis, "redis", "failure", "does not answer at 127.0.0.1", "start it"),
        (
            _own_redis(url="redis://:wrong@127.0.0.1:{port}/0"),
            "redis password", "failure", "does not accept this user and password", "GRADER_REDIS_URL",
        ),
        (_passwordless_url, "configuration", "failure", "Redis on 10.0.0.5 needs a password", "correct it"),
        (_open_redis, "redis password", "warning", "without a password", "requirepass"),
        (_own_redis("appendonly no"), "redis persistence", "failure", "appendonly no", "appendonly yes"),
        (
            _own_redis("maxmemory-policy allkeys-lru"),
            "redis eviction", "failure", "allkeys-lru", "maxmemory-policy noeviction",
        ),
        (_own_redis("maxmemory 1"), "redis memory", "failure", "takes no more work", "raise maxmemory"),
        (_nearly_full, "redis memory", "warning", "in use", "raise maxmemory"),
        (_own_redis("replicaof 127.0.0.1 1"), "redis persistence", "failure", "a replica", "the primary"),
        (_expired, "redis certificate", "failure", "certificate has expired", "renew it"),
        (_somebody_elses, "redis certificate", "failure", "is not trusted", "redis.ca_file"),
        (_unknown_keys, "configuration", "failure", "server.prot: there is no such key", "configuration.md"),
        (_short_secret, "secrets", "failure", "shorter than 16", "long random one"),
        (_secret_for_all, "secrets", "failure", "others on this computer may read", "chmod 600"),
        (_no_canvas_token, "canvas", "failure", "GRADER_CANVAS_CV_TOKEN", "grader canvas check"),
        (_no_lms_secret, "secrets", "failure", "GRADER_LMS_MOODLE_SECRET", "signs with"),
        (_no_mail, "mail", "failure", "cannot be used (ConnectionRefusedError)", "correct mail.url"),
        (_bare_python, "sandbox packages", "warning", "without IPython, matplotlib, numpy", "make sandbox"),
        (_no_database, "database", "failure", "there is no database", "grader db upgrade"),
        (_database_away, "database", "failure", "does not answer", "GRADER_DATABASE_URL"),
        (_old_tables, "database tables", "failure", "at revision nothing", "grader db upgrade"),
        (_newer_tables, "database tables", "failure", "9999, which this code does not know", "git pull"),
        (_low_disk, "disk of /tmp", "failure", "less than", "make room"),
        (_low_disk, "disk of the database", "failure", "less than", "make room"),
        (_clock, "clocks", "warning", "s from the database's", "NTP"),
        (_gone, "machine one", "failure", "it sends no heartbeats", "grader worker one"),
        (_gone, "sweeper", "failure", "does not run", "grader sweep"),
        (_gone, "store", "failure", "does not run", "grader store"),
        (_busy, "machine one", "warning", "all 2 slots are busy", "less busy"),
        (_hung, "machine one", "failure", "took no work for 9", "restart its worker"),
        (_drained, "machine one drained", "warning", "gets nothing new", "grader drain one --back"),
        (_engine_away, "machine one engine instant", "failure", "no feedback for 61 s: Start it", "mend"),
        (_other_weights, "model m", "warning", "cd on three. three differs from most", "files on three"),
        (_stranger, "machine unknown-machine", "warning", "not in this configuration", "stop its worker"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_remedy(
    case: Case, do: Break, check: str, level: str, message: str, remedy: str
) -> None:
    with ExitStack() as stack:
        do(case, stack)
        found = case.doctor()
    assert check in found, found
    assert found[check]["level"] == level, found[check]
    assert message in found[check]["message"]
    assert remedy in found[check]["remedy"]


def test_every_problem_of_the_configuration_is_named(case: Case) -> None:
    (case.folder / "config.toml").write_text(ONE.replace("slots = 2", "slots = 0") + "\n[sever]\nport = 1\n")
    said = case.run()
    assert "✗ configuration: machines[0].slots:" in said.stdout
    assert "✗ configuration: sever: there is no such key" in said.stdout
    assert "    → correct it" in said.stdout


def test_the_redis_that_grader_up_started_is_found(case: Case, redis_url: str) -> None:
    case.environ["GRADER_REDIS_URL"] = f"redis://127.0.0.1:{free_port()}/0"
    remember_redis(case.folder, redis_url)
    assert case.doctor()["redis password"]["level"] == "ok"
    assert (case.folder / "redis_url").stat().st_mode & 0o077 == 0
    forget_redis(case.folder)
    assert "does not answer" in case.doctor()["redis"]["message"]


# --- machines that examine themselves -----------------------------------------------------------------

SICK = """
[server]
port = {port}
[[machines]]
name = "well"
[machines.engines.ollama]
url = "{first}"
[machines.stages]
analysis = {{ engine = "ollama", model = "tiny" }}
[[machines]]
name = "sick"
[machines.engines.ollama]
url = "{first}"
[machines.engines.openai]
url = "http://127.0.0.1:{nobody}/v1"
[machines.stages]
analysis = {{ engine = "ollama", model = "absent" }}
feedback = {{ engine = "openai", model = "tiny" }}
[[machines]]
name = "twin"
[machines.engines.ollama]
url = "{second}"
[machines.engines.openai]
url = "{hangs}/v1"
[machines.stages]
analysis = {{ engine = "ollama", model = "tiny" }}
"""
AS_TWIN_HAS_IT = 'feedback = {{ engine = "openai", model = "tiny" }}\n'


class _OtherWeights(OllamaHandler):
    def _model(self, name: str) -> dict[str, Any]:
        return {**super()._model(name), "digest": "f" * 64}


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, str]]]:
    """What one doctor finds where engines and machines are wrong in many ways."""
    folder = tmp_path_factory.mktemp("sick")
    with ExitStack() as stack:
        enter: Callable[[AbstractContextManager[Any]], Any] = stack.enter_context
        port = enter(redis_server(folder / "redis", "requirepass right", "appendonly yes"))
        known = {
            "port": free_port(),
            "nobody": free_port(),
            "first": enter(ollama_server()).url,
            "second": enter(ModelServer(_OtherWeights, Behaviour(("tiny",)))).url,
            "hangs": enter(openai_server(fault="hang")).url,
        }
        urls = f"sqlite:///{folder}/grader.db", f"redis://:right@127.0.0.1:{port}/0"
        made: Site = enter(site(folder, (SICK + AS_TWIN_HAS_IT).format(**known), *urls))
        for name in ("well", "sick", "twin"):
            made.parts.start(name, "worker", name)
        made.until_alive("well", "sick", "twin")
        environ = {"GRADER_DATABASE_URL": urls[0], "GRADER_REDIS_URL": urls[1], "GRADER_SECRET_KEY": SECRET}
        toml, options = SICK.format(**known) + FEEDBACK, ["--min-free-gb", "0", "--patience", "1"]
        case = Case(folder, environ, toml, options)
        found = case.doctor()
        for _ in range(20):
            if not late(found):
                break
            found = case.doctor()
        yield found


def late(found: dict[str, dict[str, str]]) -> bool:
    """A server that is well may take longer than the patience that is given to the one which hangs."""
    well, absent = found.get("machine well model tiny", {}), found.get("machine sick model absent", {})
    return any("did not finish within" in one.get("message", "") for one in (well, absent))


FEEDBACK = """
[[machines]]
name = "gone"
[machines.stages]
feedback = { engine = "instant", model = "m" }
"""


@pytest.mark.parametrize(
    ("check", "level", "message", "remedy"),
    [
        ("machine well", "ok", "heartbeats", ""),
        ("machine well model tiny", "ok", "generated a token in", ""),
        ("machine well link", "ok", "a round trip", ""),
        ("machine sick model absent", "failure", "does not have the model absent", "ollama pull"),
        ("machine sick model tiny", "failure", "refused the connection", "start the engine"),
        ("machine twin model tiny", "failure", "did not finish within the 1 s", "restart the engine"),
        ("machine twin stages", "failure", "this configuration says analysis: tiny (ollama)", "config.toml"),
        ("machine gone", "failure", "sends no heartbeats", "grader worker gone"),
        ("model tiny", "warning", "different weights under the name tiny (ollama)", "`ollama pull tiny` on"),
        ("web app", "failure", "does not answer at http://127.0.0.1", "grader web"),
    ],
)
def test_what_machines_find_out_about_themselves(
    sick: dict[str, dict[str, str]], check: str, level: str, message: str, remedy: str
) -> None:
    assert check in sick, [v for k, v in sick.items() if k.startswith("machine")]
    assert sick[check]["level"] == level, sick[check]
    assert message in sick[check]["message"]
    assert remedy in sick[check]["remedy"]


def test_packages_of_students_are_those_of_the_extra(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    named = [line.partition(">")[0] for line in project["optional-dependencies"]["sandbox"]]
    assert [name.lower() for name in STUDENTS_PYTHON] == named
