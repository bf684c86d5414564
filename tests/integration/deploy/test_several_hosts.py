"""deploy/several-hosts: what runs where, with which rights, and a Redis that really gets a successor."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.deploy.unit_command import PARTS
from cli.deploy.units import MARGIN_S
from grading.config import redis_url
from grading.store import failover as database_url
from tests.support.compose import resolved
from tests.support.networks import PATH, held
from tests.support.system import until

FILE = "deploy/several-hosts/docker-compose.yml"
HOSTS = {"GRADER_ONE": "10.213.79.1", "GRADER_TWO": "10.213.79.2", "GRADER_THREE": "10.213.79.3"}
SECRETS = {
    "GRADER_REDIS_PASSWORD": "r-word",
    "GRADER_DATABASE_PASSWORD": "d-word",
    "GRADER_REPLICATION_PASSWORD": "c-word",
    "GRADER_SECRET_KEY": "s-word",
}
VARIABLES = {**HOSTS, **SECRETS, "GRADER_ADDRESS": "10.213.79.1"}
EVERYTHING = {"migrate", "web", "store", "sweeper", "sandbox", "redis", "sentinel", "postgres"}
DRAIN_S = 10
"""`server.drain_s`, as several-hosts.md sets it."""
RUNS = {"one": EVERYTHING, "two": EVERYTHING, "three": {"sentinel", "proxy"}}


@pytest.fixture(scope="module")
def services(root: Path) -> dict[str, Any]:
    return resolved(root / FILE, *RUNS, variables=VARIABLES)


def test_each_host_runs_what_it_should(services: dict[str, Any]) -> None:
    for host, expected in RUNS.items():
        assert {name for name, one in services.items() if host in one["profiles"]} == expected
    assert set(services) == EVERYTHING | {"proxy"}


def test_a_missing_variable_is_refused_by_its_name(root: Path) -> None:
    for name in (*SECRETS, *HOSTS, "GRADER_ADDRESS"):
        text = (root / FILE).read_text("utf-8")
        assert f"${{{name}:?set it in .env}}" in text, name


def test_parts_know_all_sentinels_and_both_databases(services: dict[str, Any]) -> None:
    for name in ("migrate", "web", "store", "sweeper", "sandbox"):
        environment = services[name]["environment"]
        for address in HOSTS.values():
            assert f"{address}:26379" in environment["GRADER_REDIS_URL"]
        address = redis_url.parse(redis_url.checked(environment["GRADER_REDIS_URL"], None))
        assert (len(address.hosts), address.name, address.sentinel_password) == (3, "grader", "r-word")
        database = database_url.parse_url(environment["GRADER_DATABASE_URL"])
        assert database.query["host"] == "10.213.79.1,10.213.79.2"
        assert database.query["target_session_attrs"] == "read-write"
        assert bool(environment["GRADER_SECRET_KEY"]) == (name != "sandbox"), name


def test_nothing_is_privileged_and_parts_get_the_time_that_they_need_to_end(services: dict[str, Any]) -> None:
    for name, one in services.items():
        assert not one.get("privileged"), name
        assert "ports" not in one, name
        if name != "postgres":  # its image becomes another user by itself
            assert one["cap_drop"] == ["ALL"], name
            assert one["read_only"] is True, name
            assert "no-new-privileges:true" in one["security_opt"], name
    for name in ("web", "store", "sweeper", "sandbox"):
        minutes, _, rest = services[name]["stop_grace_period"].rpartition("m")
        seconds = 60 * int(minutes or 0) + int(rest.removesuffix("s") or 0)
        drain = DRAIN_S if name == "web" else 0
        assert seconds == PARTS[name.removesuffix("er")] + drain + MARGIN_S, name


@pytest.mark.parametrize(
    ("host", "data", "says", "does"),
    [
        ("one", {}, "", "docker-entrypoint.sh postgres"),
        ("two", {}, "f", "pg_basebackup docker-entrypoint.sh postgres"),
        ("two", {"PG_VERSION": "16", "standby.signal": ""}, "f", "docker-entrypoint.sh postgres"),
        ("two", {"PG_VERSION": "16"}, "t", "docker-entrypoint.sh postgres"),  # promoted; one is its copy
        ("one", {"PG_VERSION": "16"}, "", "docker-entrypoint.sh postgres"),  # two is away
        ("one", {"PG_VERSION": "16"}, "f", ""),  # two was promoted meanwhile
        ("one", {}, "f", "pg_basebackup docker-entrypoint.sh postgres"),  # and its data was removed
    ],
)
def test_postgresql_starts_as_what_it_is_and_never_beside_another_primary(
    services: dict[str, Any], tmp_path: Path, host: str, data: dict[str, str], says: str, does: str
) -> None:
    """With programs that only say that they were called."""
    programs, folder, log = tmp_path / "bin", tmp_path / "data", tmp_path / "log"
    programs.mkdir()
    folder.mkdir()
    for name, text in data.items():
        (folder / name).write_text(f"{text}\n")
    called = f'#!/bin/sh\nfor word in "${{0##*/}}" "$@"; do printf "%s " "$word"; done >> {log}\n'
    for name in ("docker-entrypoint.sh", "pg_basebackup"):
        (programs / name).write_text(called)
    (programs / "psql").write_text(f"#!/bin/sh\necho {says}\n" if says else "#!/bin/sh\nexit 2\n")
    for one in programs.iterdir():
        one.chmod(0o755)
    service = services["postgres"]
    environment = {
        **service["environment"],
        "GRADER_ADDRESS": HOSTS[f"GRADER_{host.upper()}"],
        "PGDATA": str(folder),
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    words = [word.replace("$$", "$") for word in service["command"]]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
    said = log.read_text().split(" ") if log.exists() else []
    assert [word for word in said if word in (*does.split(), "pg_basebackup", "postgres")] == does.split()
    assert (done.returncode == 0) == bool(does)
    if not does:
        assert "10.213.79.2 is the primary" in done.stderr


# --- the scripts of the file, run ---------------------------------------------------------------------


@contextmanager
def three_hosts() -> Iterator[tuple[str, ...]]:
    """What a command begins with that runs where all three addresses are this computer's own."""
    hold = ("unshare", "--user", "--map-root-user", "--net", "sh", "-c", "echo ready; exec cat")
    with held(*hold) as pid:
        enter = ("nsenter", "--target", str(pid), "--user", "--preserve-credentials", "--net")
        up = ["ip link set lo up", *(f"ip address add {one}/32 dev lo" for one in HOSTS.values())]
        subprocess.run(
            [*enter, "sh", "-euc", "\n".join(up)], env={**os.environ, "PATH": PATH}, check=True, timeout=60
        )
        yield enter


@contextmanager
def running(enter: tuple[str, ...], service: dict[str, Any], host: str, folder: Path) -> Iterator[Any]:
    """A service of the file as the process that its container would run."""
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, **service["environment"], "GRADER_ADDRESS": HOSTS[f"GRADER_{host.upper()}"]}
    words = [word.replace("$$", "$") for word in service["command"]]
    with (
        (folder / "log").open("a") as log,
        subprocess.Popen([*enter, *words], cwd=folder, env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.soak
def test_redis_gets_a_successor_and_the_old_primary_comes_back_as_its_replica(
    services: dict[str, Any], tmp_path: Path
) -> None:
    with three_hosts() as enter, ExitStack() as stack:

        def ask(host: str, port: int, *words: str) -> str:
            call = ("redis-cli", "-h", HOSTS[f"GRADER_{host.upper()}"], "-p", str(port), *words)
            environment = {**os.environ, "REDISCLI_AUTH": SECRETS["GRADER_REDIS_PASSWORD"]}
            done = subprocess.run(
                [*enter, *call], env=environment, capture_output=True, text=True, timeout=60
            )
            return done.stdout.strip()

        def start(name: str, host: str) -> Any:
            return stack.enter_context(running(enter, services[name], host, tmp_path / f"{name}-{host}"))

        def replication(host: str, *wanted: str) -> bool:
            said = ask(host, 6379, "info", "replication")
            return all(one in said for one in wanted)

        def quorum() -> bool:
            return all(ask(one, 26379, "sentinel", "ckquorum", "grader").startswith("OK 3") for one in RUNS)

        primary = start("redis", "one")
        until(lambda: ask("one", 6379, "ping") == "PONG", 60, "the primary answers")
        start("redis", "two")
        for host in RUNS:
            start("sentinel", host)
        until(lambda: replication("two", "master_link_status:up"), 60, "two is a replica")
        until(quorum, 60, "the sentinels know each other")
        assert ask("one", 6379, "set", "grader:kept", "yes") == "OK"
        until(lambda: ask("two", 6379, "get", "grader:kept") == "yes", 60, "the key is replicated")
        primary.kill()
        until(lambda: replication("two", "role:master"), 60, "two is the primary")
        assert ask("two", 6379, "get", "grader:kept") == "yes"
        primary.wait()
        start("redis", "one")  # with the file of its first start
        until(lambda: replication("one", "role:slave", "master_link_status:up"), 60, "one is its replica")
