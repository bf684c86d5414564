"""Redis with a successor: sentinels decide, and clients, users, scripts and the doctor follow."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from cli.doctor import successor
from cli.doctor.finding import Bounds
from cli.main import grader
from grading.broker import celery_app, lua_scripts, redis_acl, redis_users, sentinels, signing
from grading.broker.connections import connect, when_primary_changes
from grading.broker.leases import load_scripts, load_scripts_on_replicas
from grading.config.redis_url import parse
from tests.faults.harness.machines import MachineSpec, config_of
from tests.support.redis_servers import certificates
from tests.support.redis_sets import ADMIN, HOST, NAME, SERVER_PASSWORD, RedisSet, redis_set

KEYS = signing.Keyring(SERVER_PASSWORD, users=True)


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisSet]:
    folder = tmp_path_factory.mktemp("set")
    config, tls = config_of([MachineSpec("one")], 8000), certificates(folder / "tls")
    with pytest.MonkeyPatch.context() as patch:
        # reading the authorities of this computer takes longer than all the rest
        patch.setenv("SSL_CERT_FILE", str(tls.ca))
        with redis_set(folder, config, tls=tls) as made:
            yield made


def findings(redis: RedisSet) -> dict[str, str]:
    with closing(connect(redis.url)) as client:
        found = list(successor.diagnose(parse(redis.url), client, Bounds()))
    return {one.code: f"{one.message}; {one.remedy}" for one in found if one.code}


def test_the_doctor_finds_a_user_that_only_the_primary_has_and_install_brings_it(redis: RedisSet) -> None:
    assert findings(redis) == {}
    [replica] = redis.others(redis.primary())
    with replica.client() as admin:
        admin.acl_deluser("machine.one")
        admin.execute_command("ACL SETUSER", "server", "-info")
    found = findings(redis)
    assert "machine.one" in found["redis_users_missing"]
    assert "grader redis acl --install" in found["redis_users_differ"]
    with pytest.raises(redis_users.UsersNotInstalled, match=r"sentinels do not say.*an administrator admin"):
        redis_users.install(redis.config, KEYS, (ADMIN[0], "wrong"))
    assert redis_users.install(redis.config, KEYS, ADMIN) == {}
    assert findings(redis) == {}
    with closing(connect(redis.urls["one"])) as kept:
        assert kept.ping()
    new = redis_users.install(redis.config, KEYS, ADMIN, renew=["one"])
    assert list(new) == ["machine.one"]
    renewed = redis_acl.url_of(redis.config, "machine.one", new["machine.one"])
    for node in redis.redis:
        with sentinels.connected_to(parse(renewed), (HOST, node.port)) as client:
            assert client.ping()


def test_the_command_prints_what_the_files_need_and_installs(
    redis: RedisSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").write_text(config_of([MachineSpec("one")], 8000))
    monkeypatch.setenv("GRADER_REDIS_URL", redis.url)

    def acl(*words: str) -> Result:
        return CliRunner().invoke(grader, ["--config", str(tmp_path / "config.toml"), "redis", "acl", *words])

    printed = acl()
    assert printed.stdout.splitlines()[-2:] == redis_users.lines(KEYS)
    told = dict(line.split(": GRADER_REDIS_URL=") for line in printed.stderr.splitlines() if "URL=" in line)
    assert set(told) == {"server", "machine.one"}
    assert parse(told["machine.one"]).sentinel_password == redis_users.passwords(KEYS)["clients"]
    assert f"  masterauth {redis_users.passwords(KEYS)['replica']}" in printed.stderr.splitlines()
    assert acl("--sentinels").stdout.splitlines() == redis_users.sentinel_lines(KEYS)
    assert "GRADER_REDIS_ADMIN" in str(acl("--install").exception)
    monkeypatch.setenv("GRADER_REDIS_ADMIN", ":".join(ADMIN))
    installed = acl("--install")
    assert installed.output == "Every Redis and every sentinel has its users.\n"
    monkeypatch.setenv("GRADER_REDIS_URL", "redis://server:x@127.0.0.1:1/0")
    assert "names no sentinels" in str(acl("--sentinels").exception)


class Changes:
    """Hears of each new primary."""

    def __init__(self) -> None:
        self.heard = threading.Event()

    def hear(self) -> None:
        self.heard.set()


def test_clients_follow_when_another_becomes_the_primary(redis: RedisSet) -> None:
    client, app, changes = connect(redis.url), celery_app.celery_app(redis.url, 60), Changes()
    when_primary_changes(redis.url, changes.hear)
    load_scripts(client)
    assert load_scripts_on_replicas(redis.url) > 0
    assert load_scripts_on_replicas(redis.url) == 0
    before, popped = redis.primary(), list[Any]()
    app.send_task("grader.prepare", args=["x"], queue="store", ignore_result=True)
    waiting = threading.Thread(target=wait_for_entry, args=(client, popped), daemon=True)
    waiting.start()
    with redis.sentinels[0].client() as admin:
        admin.execute_command("SENTINEL FAILOVER", NAME)
    assert changes.heard.wait(30)
    assert redis.primary() is not before
    assert client.info("replication")["role"] == "master"
    assert client.script_exists(lua_scripts.digest(lua_scripts.CLAIM)) == [True]
    app.send_task("grader.prepare", args=["y"], queue="store", ignore_result=True)
    assert client.llen("store") == 2
    client.lpush("results.one", "entry")
    waiting.join(30)
    assert popped == [("results.one", "entry")]
    client.close()
    app.close()


def wait_for_entry(client: Redis, popped: list[Any]) -> None:
    """As the store waits for what machines tell."""
    while not popped:
        try:
            found = client.brpop(["results.one"], timeout=1)
        except RedisConnectionError:
            continue
        if found:
            popped.append(tuple(found))


def test_the_newest_decision_counts_whichever_sentinel_is_asked_first(redis: RedisSet) -> None:
    known = sentinels.Sentinels(parse(redis.url))
    with closing(known):
        newest = known.look()
        assert newest is not None
        older = {**newest.state, "config-epoch": newest.age[0] - 1, "port": 1}
        stale = sentinels.Told(newest.sentinel, older)
        assert known._newer([stale]) is newest
        assert known._newer([stale, newest]) is newest


def test_a_stranger_is_noticed_on_a_sentinel(redis: RedisSet) -> None:
    assert redis_acl.open_to_strangers(redis.url) == []
    with redis.sentinels[2].client() as admin:
        admin.execute_command("ACL SETUSER", "default", "on", "nopass", "+ping")
    assert redis_acl.open_to_strangers(redis.url) == [HOST]
    redis.sentinels[1].end()
    assert "sentinel_away" in findings(redis)


def test_new_passwords_are_printed_when_a_sentinel_is_away_meanwhile(
    redis: RedisSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").write_text(config_of([MachineSpec("one")], 8000))
    monkeypatch.setenv("GRADER_REDIS_URL", redis.url)
    monkeypatch.setenv("GRADER_REDIS_ADMIN", ":".join(ADMIN))
    redis.sentinels[1].end()
    words = ["--config", str(tmp_path / "config.toml"), "redis", "acl", "--install", "--machine", "one"]
    told = CliRunner().invoke(grader, words)
    assert "did not take the users" in str(told.exception)
    user, _, address = told.stderr.strip().partition(": GRADER_REDIS_URL=")
    assert user == "machine.one"
    with sentinels.connected_to(parse(address), (HOST, redis.primary().port)) as client:
        assert client.ping()
