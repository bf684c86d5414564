"""Redis between computers: TLS, a user a machine, and messages that nobody of this system sent."""

from __future__ import annotations

import base64
import json
import os
import pickle
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kombu
import pytest
from click.testing import CliRunner, Result
from redis.exceptions import NoPermissionError
from sqlalchemy import select

from cli.main import grader
from grading.broker import redis_acl, signing
from grading.broker.gateway_requests import chat_queue
from grading.broker.leases import result_key
from grading.broker.redis_acl import RedisOpen, RedisUntrusted, refuse_open
from grading.config import settings as configuration
from grading.store.learning_platforms import all_tables
from grading.store.tables import Run
from tests.support import factories
from tests.support.redis_servers import Certificates, acl_file, certificates, client, password, redis_server
from tests.support.system import Site, site, until

MACHINES = """
[[machines]]
name = "one"
slots = 2
[machines.stages]
analysis = { engine = "instant", model = "m" }
[[machines]]
name = "two"
slots = 2
[machines.stages]
feedback = { engine = "instant", model = "m" }
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("tls") / "good")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, authority: Certificates) -> Iterator[Site]:
    """Every part runs as a user of its own, over TLS, on a Redis that knows nobody else."""
    folder = tmp_path_factory.mktemp("secured")
    read = configuration.parse({"machines": _machines()})
    keys = signing.Keyring(password(), users=True)
    users = {"server": keys.password, **{f"machine.{n}": keys.machine_password(n) for n in ("one", "two")}}
    rules = acl_file(folder / "redis", redis_acl.lines(read, users))
    with redis_server(folder / "redis", rules, tls=authority) as port:
        known = read.model_copy(
            update={"redis": read.redis.model_copy(update={"url": f"rediss://localhost:{port}/0"})}
        )
        urls = {user: redis_acl.url_of(known, user, secret) for user, secret in users.items()}
        toml = f'[redis]\nca_file = "{authority.ca}"\n{MACHINES}'
        with site(folder, toml, f"sqlite:///{folder}/grader.db", urls["server"]) as made:
            for name in ("store", "sweep"):
                made.parts.start(name, name)
            for name in ("one", "two"):
                own = urls[f"machine.{name}"]
                made.parts.start(name, "worker", name, environ={"GRADER_REDIS_URL": own})
                (folder / f"{name}.url").write_text(own)
            made.until_alive("one", "two", timeout_s=20)
            factories.add_assignment(made.store)
            yield made


def _machines() -> list[dict[str, Any]]:
    import tomllib

    machines: list[dict[str, Any]] = tomllib.loads(MACHINES)["machines"]
    return machines


def _invoke(folder: Path, *command: str) -> Result:
    return CliRunner().invoke(grader, ["--config", str(folder / "config.toml"), *command])


def _grade(made: Site, student: str) -> None:
    made.dispatch.announce(factories.submit(made.store, 1, student).round_id)


def _user_url(made: Site, user: str) -> str:
    """The URL with which a part of the site was started."""
    url = (made.folder / f"{user}.url").read_text()
    authority = made.config.redis.ca_file
    return f"{url}?ssl_cert_reqs=required&ssl_ca_certs={authority}"


def _test_url(made: Site) -> str:
    return made.config.redis.url.replace(made.config.redis.url.split("//")[1].split("@")[0], "test:test")


def test_the_whole_path_over_tls_with_a_user_a_machine(secured: Site) -> None:
    for student in ("s1", "s2", "s3"):
        _grade(secured, student)
    secured.until_final(3, 30)
    # canaries come back, and a machine examines itself, with these rights
    until(lambda: all(m.canary_age_s == 0 for m in secured.dispatch.machines()), 30, "canaries answered")
    secured.dispatch.celery.send_task("grader.examine", args=["x", 5.0, 9e9], queue="machine.one")
    until(lambda: secured.dispatch.registry.redis.get("grader:examinations:one:x"), 30, "an examination")
    with client(_test_url(secured)) as admin:
        denied = admin.execute_command("ACL", "LOG")
    assert denied == [], [(d["object"], d["username"], d["context"]) for d in denied]


@pytest.mark.parametrize(
    "command",
    [
        ("FLUSHALL",),
        ("FLUSHDB",),
        ("CONFIG", "GET", "requirepass"),
        ("KEYS", "*"),
        ("DEBUG", "SLEEP", "0"),
        ("ACL", "LIST"),
        ("MONITOR",),
        ("SCAN", "0"),
        ("GET", "secret"),
        ("SET", "secret", "x"),
        ("BRPOP", "store", "1"),
        ("RPOP", "feedback"),
        ("RPOP", "machine.two"),
        ("LRANGE", "analysis", "0", "-1"),
        ("BRPOP", chat_queue("other"), "1"),
        ("HSET", "grader:drained", "two", "1"),
        ("HGETALL", "grader:parts"),
        ("HSET", "grader:speed_profiles:two", "x", "1"),
        ("PUBLISH", "/0.celery.pidbox", "{}"),
        ("SUBSCRIBE", "celery-task-meta-x"),
    ],
    ids=" ".join,
)
def test_a_machine_may_not(secured: Site, command: tuple[str, ...]) -> None:
    with client(_user_url(secured, "one")) as machine:
        assert machine.ping()
        with pytest.raises(NoPermissionError):
            machine.execute_command(*command)


def test_the_server_may_have_the_append_only_file_written_anew(secured: Site) -> None:
    """As erasing a student needs; it counts as a command for administrators."""
    assert secured.dispatch.registry.redis.bgrewriteaof()


def test_the_server_may_not_empty_redis(secured: Site) -> None:
    for command in (("FLUSHALL",), ("CONFIG", "SET", "appendonly", "no"), ("KEYS", "*"), ("DEBUG", "RELOAD")):
        with pytest.raises(NoPermissionError):
            secured.dispatch.registry.redis.execute_command(*command)


def test_a_certificate_of_somebody_else_is_refused_in_words(secured: Site, tmp_path: Path) -> None:
    other = certificates(tmp_path / "other")
    url = secured.config.redis.url.replace(str(secured.config.redis.ca_file), str(other.ca))
    with pytest.raises(RedisUntrusted, match=r"not trusted: .* Name its certificate authority in redis.ca_f"):
        refuse_open(url)
    with pytest.raises(RedisUntrusted, match=r"127\.0\.0\.1"):  # which the certificate does not name
        refuse_open(secured.config.redis.url.replace("localhost", "127.0.0.1"))
    refuse_open(secured.config.redis.url)


def test_a_redis_for_everybody_is_refused_beyond_loopback(
    tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with redis_server(tmp_path) as port:
        url = f"redis://:ignored@127.0.0.1:{port}/0"
        refuse_open(url)  # on loopback it is this computer's own affair
        monkeypatch.setattr(redis_acl, "here", lambda _host: False)
        with pytest.raises(RedisOpen, match="Set requirepass"):
            refuse_open(url)
    refuse_open(redis_url)  # asks for its password
    refuse_open(url)  # away: no reason not to start


def test_no_part_starts_on_a_redis_for_everybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.toml").write_text(MACHINES)
    monkeypatch.setattr(redis_acl, "here", lambda _host: False)
    with redis_server(tmp_path / "redis") as port:
        monkeypatch.setenv("GRADER_REDIS_URL", f"redis://127.0.0.1:{port}/0")
        for command in (
            ["worker", "one"],
            *([part] for part in ("web", "store", "sandbox", "sweep", "gateway")),
        ):
            refused = _invoke(tmp_path, *command)
            assert isinstance(refused.exception, RedisOpen), command


# --- forged messages ----------------------------------------------------------------------------------


class _Pickled:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def _message(task: str, body: Any = None, *, raw: bytes | None = None, **other: Any) -> str:
    content = json.dumps(body).encode() if raw is None else raw
    headers = {"lang": "py", "task": task, "id": uuid.uuid4().hex, "root_id": None, "parent_id": None}
    envelope = {
        "body": base64.b64encode(content).decode(),
        "content-type": other.pop("content_type", "application/json"),
        "content-encoding": other.pop("content_encoding", "utf-8"),
        "headers": {**headers, "group": None, "argsrepr": "", "kwargsrepr": "", **other},
        "properties": {
            "correlation_id": headers["id"],
            "delivery_info": {"exchange": "", "routing_key": "store"},
            "delivery_tag": uuid.uuid4().hex,
            "body_encoding": "base64",
        },
    }
    return json.dumps(envelope)


def _forged(trap: Path) -> dict[str, str]:
    """Each kind of message, for workers of every kind."""
    pickled, deep = pickle.dumps(_Pickled(trap)), b"[" * 100_000
    yaml = f'!!python/object/apply:pathlib.Path.touch ["{trap}"]'.encode()
    return {
        "pickle": _message("grader.run", raw=pickled, content_type="application/x-python-serialize"),
        "pickle said to be JSON": _message("grader.run", raw=pickled),
        "yaml": _message("grader.run", raw=yaml, content_type="application/x-yaml"),
        "a task that is none": _message("os.system", [[f"touch {trap}"], {}, {}]),
        "a task that there is not": _message("grader.explode", [[], {}, {}]),
        "broken JSON": _message("grader.run", raw=b'[[], {"job"'),
        "no envelope": "not a message",
        "an envelope of another shape": '{"body": [1, 2]}',
        "deep JSON": _message("grader.run", raw=deep + b"]" * 100_000),
        "a deep envelope": "[" * 100_000,
        "compressed": _message("grader.run", [[], {}, {}], compression="application/x-gzip"),
        "headers of another shape": _message("grader.run", [[], {}, {}], timelimit=7),
        "a job that is none": _message("grader.run", [[], {"job": {"run_id": 1}}, {}]),
        "a job that is a number": _message("grader.run", [[], {"job": 5}, {}]),
        "arguments that it does not take": _message("grader.run", [[], {"nope": 5}, {}]),
        "a result of an earlier version": _message("grader.record", [[{"run_id": 1}], {}, {}]),
    }


def _false_results(made: Site, rounds: list[str]) -> list[dict[str, Any]]:
    """For a run never dispatched, another round's run and another stage's run."""
    with made.store.read() as session:
        run = session.scalars(select(Run).where(Run.round_id == rounds[0], Run.stage == "analysis")).one()
    made_up = [
        factories.result("0" * 32, rounds[0], "analysis"),
        factories.result(run.id, rounds[1], "analysis"),
        factories.result(run.id, rounds[0], "feedback"),
    ]
    return [result.model_dump(mode="json") for result in made_up]


def _signed(made: Site, machine: str, result: dict[str, Any]) -> str:
    """As a machine signs that has the job of the run."""
    signer = signing.signer(_user_url(made, machine), machine)
    return signer.sign("result", result, made.dispatch.keys.run_secret(result["run_id"]))


def _dispatched(made: Site, rounds: list[str]) -> int:
    with made.store.read() as session:
        return len(session.scalars(select(Run.id).where(Run.round_id.in_(rounds))).all())


HOUSEKEEPING = ("periodic_tasks", "change_markers")
"""Tables that the sweeper tidies each minute."""


def _everything(made: Site) -> dict[str, list[Any]]:
    with made.store.read() as session:
        kept = [t for t in all_tables().sorted_tables if t.name not in HOUSEKEEPING]
        return {t.name: sorted(map(repr, session.execute(select(t)))) for t in kept}


def _log(made: Site, part: str) -> str:
    return (made.folder / f"{part}.log").read_text(errors="replace")


def test_forged_messages_do_nothing_and_stop_nobody(secured: Site, tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    forged = _forged(trap)
    before = {name: secured.parts.running[name].pid for name in ("one", "store")}
    lines = {name: _log(secured, name).count("ERROR") for name in before}
    with client(_test_url(secured)) as redis:
        stopped = [secured.parts.running[name].pid for name in ("one", "two")]
        done = len(_everything(secured)["grades"])
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            rounds = [factories.submit(secured.store, 1, student).round_id for student in ("f1", "f2")]
            for round_id in rounds:
                secured.dispatch.announce(round_id)
            until(lambda: _dispatched(secured, rounds) == 4, 30, "runs are sent")
            until(lambda: redis.llen("store") == 0 and redis.hlen("unacked") == 0, 30, "the store is idle")
            state = _everything(secured)
            results = _false_results(secured, rounds)
            for message in forged.values():
                redis.lpush("store", message)
                redis.lpush("results.one", message)
            for number, result in enumerate(results, 1):
                redis.set(result_key("one", result["run_id"]), _signed(secured, "one", result))
                redis.lpush("results.one", result["run_id"])
                until(
                    lambda n=number: _log(secured, "store").count("was ignored") == n,
                    30,
                    "a result is refused",
                )
            until(lambda: redis.llen("store") == 0 and redis.hlen("unacked") == 0, 30, "all refused")
            assert _everything(secured) == state
            for message in forged.values():
                redis.rpush("analysis", message)
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        secured.until_final(done + len(rounds), 30)
        until(lambda: redis.llen("analysis") == 0 and redis.hlen("unacked") == 0, 30, "all refused")
    assert not trap.exists()
    for name, pid in before.items():
        assert (secured.parts.running[name].poll(), secured.parts.running[name].pid) == (None, pid)
        assert _log(secured, name).count("ERROR") - lines[name] >= len(forged)
    _grade(secured, "after")
    secured.until_final(done + len(rounds) + 1, 30)


def test_acl_prints_users_that_redis_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.toml").write_text(MACHINES)
    monkeypatch.setenv("GRADER_REDIS_PASSWORD_SERVER", "of/the@server#50%3F?")
    printed = _invoke(tmp_path, "redis", "acl")
    assert printed.exit_code == 0, printed.output
    users = [line.split()[1] for line in printed.stdout.splitlines()]
    assert users == ["default", "server", "machine.one", "machine.two"]
    told = dict(line.split(": GRADER_REDIS_URL=") for line in printed.stderr.splitlines()[:3])
    assert told["server"].startswith("redis://server:of%2Fthe%40server%2350%253F%3F@127.0.0.1")
    for url in told.values():
        assert str(urlsplit(url).password) not in printed.stdout
    assert "replace the loopback address by the server's" in printed.stderr
    rules = acl_file(tmp_path / "redis", printed.stdout.splitlines())
    with (
        redis_server(tmp_path / "redis", rules) as port,
        client(told["machine.one"].replace(":6379", f":{port}")) as machine,
        client(told["server"].replace(":6379", f":{port}")) as server,
        kombu.Connection(told["server"].replace(":6379", f":{port}")) as queues,
    ):
        assert machine.ping()
        assert server.ping()
        queues.ensure_connection(max_retries=1)
    alone = _invoke(tmp_path, "redis", "acl", "--machine", "two")
    assert [line.split()[1] for line in alone.stdout.splitlines()] == ["machine.two"]
    monkeypatch.delenv("GRADER_REDIS_PASSWORD_SERVER")
    refused = _invoke(tmp_path, "redis", "acl", "--machine", "two")
    assert "is derived from the server's" in str(refused.exception)
    monkeypatch.setenv("GRADER_REDIS_URL", told["server"])
    alone = _invoke(tmp_path, "redis", "acl", "--machine", "two")
    assert alone.stderr.startswith("machine.two: GRADER_REDIS_URL=redis://machine.two:")
