"""`grader doctor` on set-ups that are broken on purpose: each fault is named, with its remedy."""

from __future__ import annotations

import json
import socket
import sys
import tomllib
import venv
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from redis import Redis
from sqlalchemy import text

from cli.dev.embedded_redis import free_port
from cli.doctor import database as database_checks
from cli.doctor.command import MARKS
from cli.doctor.server import STUDENTS_PYTHON, locked
from cli.main import grader
from cli.settings import forget_redis, key_fingerprint, remember_redis
from grading.broker.canaries import CANARIES, PARTS, Canaries
from grading.broker.celery_app import SANDBOX, STORE
from grading.broker.connections import connect
from grading.broker.heartbeats import Heartbeat
from grading.broker.leases import HEARTBEATS, Leases
from grading.domain.errors import GraderError
from grading.store import Store, schema
from grading.store.audit import write_audit
from grading.store.database import now
from grading.store.tables import Audit, EventReceiver
from tests.support.postgres_servers import refusing_postgres
from tests.support.redis_servers import certificates, redis_server
from tests.support.servers.base import Behaviour, ModelServer
from tests.support.servers.ollama_server import OllamaHandler
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

    def findings(self) -> list[dict[str, str]]:
        """All that the doctor says."""
        (self.folder / "config.toml").write_text(self.toml)
        said = self.run("--json")
        assert isinstance(said.exception, GraderError), said.exception
        found: list[dict[str, str]] = json.loads(said.stdout)["findings"]
        return found

    def doctor(self) -> dict[str, dict[str, str]]:
        """The same by check; of several findings the worst."""
        found: dict[str, dict[str, str]] = {}
        order = ["ok", "warning", "failure"]
        for finding in self.findings():
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


def _no_secret(case: Case, _stack: ExitStack) -> None:
    del case.environ["GRADER_SECRET_KEY"]


def _secret_folder(case: Case, _stack: ExitStack) -> None:
    del case.environ["GRADER_SECRET_KEY"]
    (case.folder / "secret_key").mkdir(mode=0o700)


def _short_secret(case: Case, _stack: ExitStack) -> None:
    case.environ["GRADER_SECRET_KEY"] = "short"


def _secret_for_all(case: Case, _stack: ExitStack) -> None:
    del case.environ["GRADER_SECRET_KEY"]
    (case.folder / "secret_key").write_text(SECRET)
    (case.folder / "secret_key").chmod(0o644)


def _no_canvas_token(case: Case, _stack: ExitStack) -> None:
    case.toml += '\n[[server.canvases]]\nname = "cv"\nurl = "https://canvas.example"\n'


def _closed_canvas(case: Case, _stack: ExitStack) -> None:
    case.toml += '\n[[server.canvases]]\nname = "cv"\nurl = "https://10.0.0.9"\n'


def _receiver(case: Case, _stack: ExitStack) -> None:
    case.toml += '\n[[server.event_receivers]]\nname = "sis"\nurl = "https://10.0.0.9/events"\n'


def _paused_receiver(case: Case, stack: ExitStack) -> None:
    _receiver(case, stack)
    store = stack.enter_context(closing(Store(case.environ["GRADER_DATABASE_URL"])))
    with store.write() as session:
        session.add(EventReceiver(name="sis", mark="", paused_at=now(session)))


def _never_backed_up(case: Case, stack: ExitStack) -> None:
    store = stack.enter_context(closing(Store(case.environ["GRADER_DATABASE_URL"])))
    with store.write() as session:
        write_audit(session, "cli", "user.create", "user:1", {})
        session.flush()
        session.query(Audit).update({"at": now(session) - timedelta(hours=50)})


def _old_backup(case: Case, stack: ExitStack) -> None:
    store = stack.enter_context(closing(Store(case.environ["GRADER_DATABASE_URL"])))
    with store.write() as session:
        write_audit(session, "cli", "database.backup", "database", {})
        session.flush()
        session.query(Audit).update({"at": now(session) - timedelta(hours=50)})


def _no_lms_secret(case: Case, _stack: ExitStack) -> None:
    case.toml += '\n[server.lms_connections]\nmoodle = ["*"]\n'


def _bare_python(case: Case, _stack: ExitStack) -> None:
    venv.create(case.folder / "bare", with_pip=False)
    case.toml = f'[sandbox]\npython = "{case.folder}/bare/bin/python"\n{case.toml}'


def _old_numpy(case: Case, stack: ExitStack) -> None:
    """The environment that we make, as it was before the lock file changed."""
    venv.create(case.folder / "sandbox", with_pip=False)
    (site,) = (case.folder / "sandbox" / "lib").glob("python*/site-packages")
    for name, version in locked(Path("requirements-sandbox.lock")):
        about = site / f"{name}.dist-info"
        about.mkdir()
        old = "1.0" if name == "numpy" else version
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {old}\n")
    stack.enter_context(pytest.MonkeyPatch.context()).setattr(sys, "prefix", str(case.folder))


def _no_python(case: Case, _stack: ExitStack) -> None:
    case.toml = f'[sandbox]\npython = "{case.folder}/none"\n{case.toml}'


def _no_sandbox(case: Case, _stack: ExitStack) -> None:
    case.toml = f'[sandbox]\nbackend = "container"\nengine = "no-such-engine"\nimage = "i"\n{case.toml}'


def _no_mail_password(case: Case, _stack: ExitStack) -> None:
    case.toml += f'\n[mail]\nurl = "smtp://us@127.0.0.1:{free_port()}"\nsender = "g@school.example"\n'


def _no_mail(case: Case, _stack: ExitStack) -> None:
    case.toml += f'\n[mail]\nurl = "smtp://127.0.0.1:{free_port()}"\nsender = "g@school.example"\n'


def _no_sign_on_secret(case: Case, _stack: ExitStack) -> None:
    provider = f'title = "School"\nissuer = "https://127.0.0.1:{free_port()}"\nclient_id = "grader"\n'
    case.toml += f"\n[sign_on.providers.school]\n{provider}"


def _closed_sign_on(case: Case, stack: ExitStack) -> None:
    _no_sign_on_secret(case, stack)
    case.environ["GRADER_SIGN_ON_SCHOOL_SECRET"] = "a secret"


def _no_database(case: Case, _stack: ExitStack) -> None:
    case.environ["GRADER_DATABASE_URL"] = f"sqlite:///{case.folder}/none.db"


def _database_away(case: Case, _stack: ExitStack) -> None:
    case.environ["GRADER_DATABASE_URL"] = f"postgresql://grader@127.0.0.1:{free_port()}/grader"


def _database_refuses(case: Case, stack: ExitStack) -> None:
    port = stack.enter_context(refusing_postgres())
    case.environ["GRADER_DATABASE_URL"] = f"postgresql://grader:old@127.0.0.1:{port}/grader"


def _old_tables(case: Case, _stack: ExitStack) -> None:
    schema.downgrade(case.environ["GRADER_DATABASE_URL"], "base")


def _at(revision: str) -> Break:
    def do(case: Case, _stack: ExitStack) -> None:
        with closing(Store(case.environ["GRADER_DATABASE_URL"])) as store, store.write() as session:
            session.execute(text("update alembic_version set version_num = :at"), {"at": revision})

    return do


_unknown_tables = _at("9999")
_newer_tables = _at(f"9999{schema.SINCE}0001")


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


def _aged(case: Case, key: str, row: str, age_s: int) -> None:
    """Make a heartbeat older than it is."""
    client = connect(case.environ["GRADER_REDIS_URL"])
    content = json.loads(client.hget(key, row) or "")
    client.hset(key, row, json.dumps({**content, "at": content["at"] - age_s}))
    client.close()


def _silent(case: Case, _stack: ExitStack) -> None:
    _heartbeat(case)
    _aged(case, f"{HEARTBEATS}one", "process of one", 20)


def _silent_by_ssh(case: Case, stack: ExitStack) -> None:
    case.toml += '[machines.ssh]\nhost = "one.school.example"\n'
    _silent(case, stack)


def _twice(case: Case, _stack: ExitStack) -> None:
    client = connect(case.environ["GRADER_REDIS_URL"])
    for process, at, folder in (("p", "dgx:7", "/srv/grader"), ("q", "mac:9", "/srv/other")):
        Leases(client).heartbeat(Heartbeat(process, "one", 2, 2, runs_at=at, folder=folder))
    client.close()


def _part(case: Case, part: str, process: str, **more: str) -> None:
    client = connect(case.environ["GRADER_REDIS_URL"])
    Canaries(client).heartbeat(part, process, "v", **more)
    client.close()


def _parts(case: Case, _stack: ExitStack) -> None:
    for part in ("sweeper", "store", "sandbox"):
        _part(case, part, f"{part}:1")
    _aged(case, PARTS, "sweeper:1", 120)
    for queue in (STORE, SANDBOX):
        _unanswered(case, queue)


def _two_keys(case: Case, _stack: ExitStack) -> None:
    _part(case, "web", "a:1", secret=key_fingerprint(SECRET))
    _part(case, "web", "b:2", secret=key_fingerprint("another"))


def _other_key(case: Case, _stack: ExitStack) -> None:
    _part(case, "web", "a:1", secret=key_fingerprint("another"))


def _two_folders(case: Case, _stack: ExitStack) -> None:
    for part in ("web", "sweeper"):
        _part(case, part, f"{socket.gethostname()}:{part}", folder="/srv/old")


def _other_slots(case: Case, stack: ExitStack) -> None:
    case.toml = case.toml.replace("slots = 2", "slots = 3")
    _busy(case, stack)


def _hung(case: Case, _stack: ExitStack) -> None:
    _heartbeat(case)
    _unanswered(case, "machine.one")


def _unanswered(case: Case, queue: str) -> None:
    client = connect(case.environ["GRADER_REDIS_URL"])
    moment = client.time()[0] * 1000
    row = {"sent": moment, "since": moment - 90_000}
    client.hset(CANARIES, queue, json.dumps(row))
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


FAULTS: list[tuple[Break, str, str, str, str]] = [
    (_no_redis, "✗ redis", "redis_away", "does not answer at 127.0.0.1", "start it"),
    (
        _own_redis(url="redis://:wrong@127.0.0.1:{port}/0"), "✗ redis password", "redis_password_refused",
        "refuses this user and password", "GRADER_REDIS_URL",
    ),
    (
        _passwordless_url, "✗ configuration", "configuration_wrong",
        "Redis on 10.0.0.5 needs a password", "correct it",
    ),
    (
        _unknown_keys, "✗ configuration", "configuration_wrong",
        "server.prot: there is no such key", "configuration.md",
    ),
    (_open_redis, "! redis password", "redis_open_here", "on this computer has access", "requirepass"),
    (
        _own_redis("appendonly no"), "✗ redis persistence", "redis_not_durable",
        "appendonly no", "appendonly yes",
    ),
    (
        _own_redis("maxmemory-policy allkeys-lru"), "✗ redis eviction", "redis_evicts",
        "allkeys-lru", "maxmemory-policy noeviction",
    ),
    (_own_redis("maxmemory 1"), "✗ redis memory", "redis_full", "no work can be queued", "raise maxmemory"),
    (_nearly_full, "! redis memory", "redis_nearly_full", "in use", "raise maxmemory"),
    (
        _own_redis("replicaof 127.0.0.1 1"), "✗ redis persistence", "redis_replica",
        "a replica", "the primary",
    ),
    (_expired, "✗ redis certificate", "redis_untrusted", "certificate has expired", "renew it"),
    (_somebody_elses, "✗ redis certificate", "redis_untrusted", "is not trusted", "redis.ca_file"),
    (_no_secret, "✗ secrets", "secret_missing", "GRADER_SECRET_KEY is not set", "openssl rand -hex 24"),
    (_short_secret, "✗ secrets", "secret_short", "shorter than 16", "long random key"),
    (
        _secret_for_all, "✗ secrets", "secret_readable_by_others",
        "other users of this computer can read", "chmod 600",
    ),
    (
        _secret_folder, "! secrets", "secret_unreadable",
        "cannot be read (Is a directory)", "as the user of the web app",
    ),
    (_no_canvas_token, "✗ canvas", "canvas_token_missing", "GRADER_CANVAS_CV_TOKEN", "grader canvas check"),
    (_closed_canvas, "! canvas", "canvas_closed", "Canvas cv:", "docs/how-to/administrators/canvas.md"),
    (
        _no_lms_secret, "✗ secrets", "lms_secret_missing",
        "GRADER_LMS_MOODLE_SECRET", "grader webhook secret add moodle",
    ),
    (_receiver, "✗ secrets", "receiver_secret_missing", "GRADER_EVENTS_SIS_SECRET", "signing secret"),
    (_receiver, "! events", "receiver_closed", "receiver sis:", "docs/how-to/developers/events.md"),
    (
        _paused_receiver, "✗ events", "receiver_paused",
        "receiver sis failed for two days", "grader webhook resume sis",
    ),
    (_no_mail, "✗ mail", "mail_unusable", "cannot be used (ConnectionRefusedError)", "correct mail.url"),
    (_no_mail_password, "✗ mail", "mail_password_missing", "set GRADER_MAIL_PASSWORD", "for the sweeper"),
    (_closed_sign_on, "! single sign-on", "sign_on_without_https", "is not https", "https.md"),
    (
        _no_sign_on_secret, "✗ single sign-on school", "sign_on_secret_missing",
        "set GRADER_SIGN_ON_SCHOOL_SECRET", "for the web app",
    ),
    (
        _closed_sign_on, "✗ single sign-on school", "sign_on_provider",
        "Grader may not connect to the provider", "single-sign-on.md",
    ),
    (
        _bare_python, "! sandbox packages", "packages_missing",
        "without IPython, matplotlib, numpy", "make sandbox",
    ),
    (_old_numpy, "! sandbox packages", "packages_missing", "runs Python without numpy ", "make sandbox"),
    (_no_python, "! sandbox", "language_missing", "there is no program", "if a course uses Python"),
    (_no_sandbox, "! sandbox", "sandbox_missing", "no-such-engine", "[sandbox] backend to none"),
    (_no_database, "✗ database", "database_missing", "does not exist", "grader db upgrade"),
    (_database_away, "✗ database", "database_away", "does not answer", "GRADER_DATABASE_URL"),
    (
        _database_refuses, "✗ database password", "database_password_refused",
        'password authentication failed for user "grader"', "in GRADER_DATABASE_URL of every service",
    ),
    (_old_tables, "✗ database tables", "tables_older", "at revision none", "grader db upgrade"),
    (_newer_tables, "! database tables", "tables_newer", "but compatible", "git pull"),
    (
        _unknown_tables, "✗ database tables", "tables_unknown",
        "9999, which is unknown to this code", "git pull",
    ),
    (_never_backed_up, "! backup", "backup_never", "there is none", "grader backup --to-folder"),
    (_old_backup, "! backup", "backup_old", "the newest is 50 hours old", "grader backup --to-folder"),
    (_low_disk, "✗ disk of /tmp", "disk_full", "less than", "free space"),
    (_low_disk, "✗ disk of the database", "disk_full", "less than", "free space"),
    (_clock, "! clocks", "clocks_differ", "differs from the database's by", "NTP"),
    (_gone, "✗ machine one", "machine_never", "no heartbeat", "grader worker one"),
    (_gone, "✗ sweeper", "part_missing", "not running", "grader sweep"),
    (_gone, "✗ store", "part_missing", "not running", "grader store"),
    (_gone, "✗ web app", "web_away", "does not answer at http://127.0.0.1", "grader web"),
    (_parts, "✗ sweeper", "part_silent", "the last heartbeat is 12", "grader sweep"),
    (_parts, "✗ store", "store_hung", "took no work for 9", "see its log and restart it"),
    (_parts, "! sandbox", "sandbox_hung", "took no work for 9", "busy with long runs or hangs"),
    (
        _two_keys, "✗ secret key", "secret_differs",
        "a:1, b:2 have different secret keys", "the same GRADER_SECRET_KEY",
    ),
    (
        _other_key, "! secret key", "secret_is_another",
        "differs from that of the web app a:1", "with the environment of the web app",
    ),
    (
        _two_folders, "! folder", "folders_differ",
        "sweeper, web in /srv/old", "run commands in the folder of the services",
    ),
    (_silent, "✗ machine one", "machine_silent", "the last heartbeat is 2", "grader worker one"),
    (
        _silent_by_ssh, "✗ machine one", "machine_silent",
        "the last heartbeat is 2", "run `grader deploy one`",
    ),
    (
        _twice, "! machine one workers", "machine_twice",
        "2 workers have this name: dgx:7 in /srv/grader; mac:9 in /srv/other", "stop all but one",
    ),
    (_busy, "! machine one", "machine_busy", "all 2 slots are busy", "less busy"),
    (_hung, "✗ machine one", "machine_hung", "took no work for 9", "restart its worker"),
    (_drained, "! machine one drained", "machine_drained", "receives no new work", "grader drain one --back"),
    (
        _engine_away, "✗ machine one engine instant", "engine_broken",
        "no feedback for 61 s: Start it", "fix the engine",
    ),
    (
        _other_slots, "! machine one slots", "machine_slots_differ",
        "with 2 slots; config.toml here says 3", "config.toml",
    ),
    (
        _other_weights, "! model m", "weights_differ",
        "cd on three. three differs from most", "files on three",
    ),
    (
        _stranger, "! machine unknown-machine", "machine_unknown",
        "not in config.toml", "stop its worker",
    ),
]  # fmt: skip
"""What is broken, what the doctor then prints a mark and a name for, and parts of what it says."""


def _by_fault() -> list[tuple[Break, list[tuple[str, str, str, str]]]]:
    """Each fault once, with all that is said of it."""
    found: dict[Break, list[tuple[str, str, str, str]]] = {}
    for do, *said in FAULTS:
        found.setdefault(do, []).append((said[0], said[1], said[2], said[3]))
    return list(found.items())


@pytest.mark.parametrize(("do", "said"), _by_fault())
def test_a_fault_is_named_with_its_remedy(
    case: Case, do: Break, said: list[tuple[str, str, str, str]]
) -> None:
    with ExitStack() as stack:
        do(case, stack)
        found = case.findings()
    for one in said:
        require(found, *one)


def require(
    found: Iterable[Mapping[str, str]], mark_and_check: str, code: str, message: str, remedy: str
) -> None:
    """One of the findings has this code, and says this."""
    same = [
        row
        for row in found
        if (f"{MARKS[row['level']]} {row['check']}", row["code"]) == (mark_and_check, code)
    ]
    assert any(message in row["message"] and remedy in row["remedy"] for row in same), (same, found)


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
slots = 2
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
            "first": enter(ModelServer(OllamaHandler, Behaviour(("tiny",), 0.1, waits=(0, 1)))).url,
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


SAID = (
    ("machine well", "ok", "", "running", ""),
    ("machine well model tiny", "ok", "", "generated a token in", ""),
    (
        "machine well capacity for tiny: slots",
        "warning",
        "server_slots_fewer",
        "works on 1 at once; config.toml gives it 2 slots",
        "set the server's OLLAMA_NUM_PARALLEL to 2, or slots = 1",
    ),
    ("machine twin capacity for tiny", "ok", "", "enough: 65,536 tokens each", ""),
    ("machine well link", "ok", "", "round trip", ""),
    (
        "machine sick model absent",
        "failure",
        "model_missing",
        "does not have the model absent",
        "ollama pull",
    ),
    ("machine sick model tiny", "failure", "model_engine_away", "refused the connection", "start the engine"),
    (
        "machine twin model tiny",
        "failure",
        "model_slow",
        "did not finish within the 1 s",
        "restart the engine",
    ),
    (
        "machine twin stages",
        "failure",
        "machine_stages_differ",
        "config.toml here says analysis: tiny (ollama)",
        "config.toml",
    ),
    ("machine gone", "failure", "machine_never", "no heartbeat", "grader worker gone"),
    (
        "model tiny",
        "warning",
        "weights_differ",
        "different weights under the name tiny (ollama)",
        "`ollama pull tiny` on",
    ),
    ("web app", "failure", "web_away", "does not answer at http://127.0.0.1", "grader web"),
)


@pytest.mark.parametrize(("check", "level", "code", "message", "remedy"), SAID)
def test_what_machines_find_out_about_themselves(
    sick: dict[str, dict[str, str]], check: str, level: str, code: str, message: str, remedy: str
) -> None:
    assert check in sick, [v for k, v in sick.items() if k.startswith("machine")]
    assert (sick[check]["level"], sick[check]["code"]) == (level, code), sick[check]
    assert message in sick[check]["message"]
    assert remedy in sick[check]["remedy"]


def test_packages_of_students_are_those_of_the_extra(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    named = [line.partition(">")[0] for line in project["optional-dependencies"]["sandbox"]]
    assert [name.lower() for name in STUDENTS_PYTHON] == named


ROW = {
    "known": 2000, "new": 1000, "batch": 1, "times": 3, "accepted": None,
    "direct": {"first_s": 3.0, "tokens_s": 10.0}, "strategy": {"first_s": 2.0, "tokens_s": 10.0},
}  # fmt: skip
COMPARED = {
    "ended": "work",
    "strategies": [
        {
            "engine": "hybrid", "model": "m", "stages": ["feedback"], "strategy": "hybrid",
            "pays_by": "first_token", "computers": 1, "fault": "", "rows": [ROW],
        }
    ],
}  # fmt: skip


def test_strategies_are_measured_by_one_machine_after_the_other(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    (case.folder / "config.toml").write_text(ONE + ONE.replace('"one"', '"two"'))
    asked: list[tuple[str, Any]] = []

    def ask(_dispatch: Any, task: str, names: list[str], options: Any, *_: Any, **__: Any) -> Any:
        asked.append((names[0], options))
        return {"one": COMPARED} if names == ["one"] else {}

    monkeypatch.setattr("cli.doctor.strategies.ask_machines", ask)
    assert "No machine is running" in str(case.run("--strategies").exception)
    _heartbeat(case)
    said = case.run("--strategies", "--draft", "small")
    assert said.exception is None
    lines = said.stdout.splitlines()
    assert lines[0] == "Machine one measures its strategies, for at most 300 s."
    assert lines[-2:] == [
        "one, hybrid (feedback): pays from 1,000 new tokens; no runs of students' work are known. "
        "Recommended: on for such prompts.",
        "- one: broken off, because students' work or a gateway request came.",
    ]
    _heartbeat(case, "two")
    said = case.run("--strategies", "--json")
    assert str(said.exception) == "1 machine did not answer."
    told = json.loads(said.stdout)
    assert (told["silent"], told["strategies"][0]["advice"]["tokens"]) == (["two"], 1000)
    assert [name for name, _ in asked] == ["one", "one", "two"]
    assert asked[0][1] == [{"seconds": 300.0, "draft": "small"}]
    assert "go with --strategies" in case.run("--draft", "small").output
