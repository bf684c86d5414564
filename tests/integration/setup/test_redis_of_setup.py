"""The Redis that setup makes: TLS of its own authority, a user a machine, nobody else; renewed in time."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError
from redis.retry import Retry

from cli.dev.embedded_redis import free_port
from cli.setup import redis as made
from cli.setup.host import Host, SetupError
from grading.broker.signing import Keyring
from grading.config import settings

SERVER = "a-password-of-the-server"
NAMES = ("CONFIG", "FOLDER", "DATA", "AUTHORITY", "AUTHORITY_KEY", "CERTIFICATE", "KEY", "USERS", "PID")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A computer whose paths lie in a folder, as programs see them, too."""
    for name in NAMES:
        monkeypatch.setattr(made, name, str(tmp_path) + getattr(made, name))
    monkeypatch.setattr(made, "PORT", free_port())
    monkeypatch.setattr(Host, "_gid", lambda _self, _name: tmp_path.stat().st_gid)
    one = Host.at(Path("/"))
    one.journal.path = tmp_path / "journal"
    for path in (made.FOLDER, made.DATA, Path(made.AUTHORITY).parent):
        Path(path).mkdir(parents=True)
    return one


@pytest.fixture
def machines() -> dict[str, str]:
    keys = Keyring(SERVER, users=True)
    return {
        one.name: keys.machine_password(one.name) for one in settings.load(Path("config.toml"), {}).machines
    }


@pytest.fixture
def server(host: Host, machines: dict[str, str]) -> Iterator[None]:
    """Redis with what setup writes."""
    assert made.authority(host)
    assert made.certificate(host, "127.0.0.1")
    config = settings.load(Path("config.toml"), {})
    host.write(made.CONFIG, made.configuration(("127.0.0.1",)), 0o640)
    host.write(made.USERS, made.users(config, SERVER, machines), 0o640)
    program = shutil.which("redis-server")
    assert program
    with subprocess.Popen([program, made.CONFIG], stdout=subprocess.DEVNULL) as process:
        made.until_answers(made.url("server", SERVER, "127.0.0.1"))
        yield
        process.terminate()


ONCE = Retry(NoBackoff(), 0)


def client(user: str, password: str, host: str = "127.0.0.1") -> redis.Redis:
    return redis.Redis.from_url(made.url(user, password, host), ssl_ca_certs=made.AUTHORITY, retry=ONCE)


@pytest.mark.usefixtures("server")
def test_users_come_in_by_tls_and_reach_their_own_only(machines: dict[str, str]) -> None:
    with closing(client("server", SERVER)) as server:
        server.set("grader:one", "1")
    one = "dgx-spark-1"
    with closing(client(f"machine.{one}", machines[one], "localhost")) as machine:
        assert machine.llen(f"machine.{one}") == 0
        with pytest.raises(NoPermissionError):
            machine.get("grader:one")
    with closing(client("default", "")) as stranger, pytest.raises((AuthenticationError, NoPermissionError)):
        stranger.ping()
    with closing(redis.Redis(port=made.PORT, retry=ONCE)) as plain, pytest.raises(RedisError):
        plain.ping()
    untrusting = redis.Redis.from_url(made.url("server", SERVER, "127.0.0.1"), retry=ONCE)
    with closing(untrusting), pytest.raises(RedisError):  # this authority is nobody else's
        untrusting.ping()


def test_a_certificate_is_renewed_before_it_ends_and_for_another_name(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.authority(host)
    monkeypatch.setattr(made, "CERTIFICATE_DAYS", 29)
    assert made.certificate(host, "10.0.0.5")
    assert made.certificate(host, "10.0.0.5")  # it ends too soon
    monkeypatch.setattr(made, "CERTIFICATE_DAYS", 31)
    assert made.certificate(host, "10.0.0.5")
    assert not made.certificate(host, "10.0.0.5")
    # what Python 3.13 and newer look for, too
    verify = ["openssl", "verify", "-x509_strict", "-CAfile", made.AUTHORITY, made.CERTIFICATE]
    assert subprocess.run(verify, capture_output=True, timeout=60, check=False).returncode == 0
    shown = ["openssl", "x509", "-in", made.CERTIFICATE, "-noout", "-ext", "authorityKeyIdentifier"]
    assert (
        "Identifier" in subprocess.run(shown, capture_output=True, text=True, timeout=60, check=True).stdout
    )
    assert made.certificate(host, "grader.school.example")
    assert not made.certificate(host, "grader.school.example")
    Path(made.AUTHORITY).unlink()
    assert made.authority(host)
    assert made.certificate(host, "grader.school.example")  # another authority
    assert not made.authority(host)


def test_a_redis_that_does_not_answer_is_said(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    made.authority(host)
    monkeypatch.setattr(made, "ANSWER_S", 0.0)
    with pytest.raises(SetupError, match=f"port {made.PORT}"):
        made.until_answers(made.url("server", SERVER, "127.0.0.1"))


def test_names_that_nobody_knows_are_refused() -> None:
    assert made.addresses_of("127.0.0.1") == ("127.0.0.1",)
    with pytest.raises(SetupError, match="--address"):
        made.addresses_of("no-such-name.invalid")
