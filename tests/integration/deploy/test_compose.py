"""docker-compose.yml is valid, keeps Redis durable and locked, and publishes nothing beyond loopback."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cli.deploy.unit_command import PARTS
from cli.deploy.units import MARGIN_S
from tests.support.compose import compose, resolved

FILE = "docker-compose.yml"
SECRETS = {
    "GRADER_REDIS_PASSWORD": "r-word",
    "GRADER_DATABASE_PASSWORD": "d-word",
    "GRADER_SECRET_KEY": "s-word",
}

PROFILES = ("sparks", "rules", "gateway", "observe")
OBSERVE = {
    "prometheus": "GRADER_METRICS_TOKEN",
    "grafana": "GF_SECURITY_ADMIN_PASSWORD",
    "flower": "FLOWER_PASSWORD",
}
"""What operators look at -> the variable with the secret it does not start without."""


@pytest.fixture(scope="module")
def services(root: Path) -> dict[str, Any]:
    """Every service with anchors, profiles and variables resolved."""
    return resolved(root / FILE, *PROFILES, variables=SECRETS)


@pytest.fixture(scope="module")
def machines(root: Path) -> list[str]:
    """The machines that config.toml ships with."""
    return [machine["name"] for machine in tomllib.loads((root / "config.toml").read_text())["machines"]]


def test_the_file_is_valid(root: Path) -> None:
    checked = compose(root / FILE, "config", "-q", variables=SECRETS)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("secret", SECRETS)
def test_a_missing_secret_is_refused(root: Path, secret: str) -> None:
    refused = compose(root / FILE, "config", "-q", variables=SECRETS | {secret: ""})
    assert refused.returncode != 0
    assert "set it in .env" in refused.stderr


def test_the_services_are_those_of_the_server_the_machines_and_operators(
    services: dict[str, Any], machines: list[str]
) -> None:
    server = {"redis", "postgres", "migrate", "web", "store", "sandbox", "sweeper", "gateway"}
    sparks = {f"worker-{name}" for name in machines if name.startswith("dgx")}
    rules = {f"rules-{name}" for name in machines}
    assert len(sparks) == 2
    assert len(rules) == 4
    assert set(services) == server | sparks | rules | set(OBSERVE)


def test_every_worker_serves_the_machine_of_its_name(services: dict[str, Any], machines: list[str]) -> None:
    for name in machines:
        assert services[f"rules-{name}"]["command"] == ["worker", name, "--engine", "rules"]
        if f"worker-{name}" in services:
            assert services[f"worker-{name}"]["command"] == ["worker", name]


def test_redis_is_durable_and_asks_for_a_password(services: dict[str, Any]) -> None:
    command = services["redis"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options == {
        "--requirepass": SECRETS["GRADER_REDIS_PASSWORD"],
        "--appendonly": "yes",
        "--appendfsync": "everysec",
        "--maxmemory-policy": "noeviction",
    }
    assert services["redis"]["volumes"]
    for name in ("web", "store", "sandbox", "sweeper", "rules-mac-studio-1"):
        assert "://:r-word@redis:" in services[name]["environment"]["GRADER_REDIS_URL"]


def test_workers_know_no_database_and_no_secret(services: dict[str, Any]) -> None:
    for name, service in services.items():
        if name.startswith(("worker-", "rules-")):
            assert set(service["environment"]) == {"GRADER_REDIS_URL", "GRADER_LOG"}, name


def test_the_sandbox_worker_knows_no_secret_key(services: dict[str, Any]) -> None:
    keys = {name: services[name]["environment"]["GRADER_SECRET_KEY"] for name in ("web", "sandbox")}
    assert keys == {"web": "s-word", "sandbox": ""}


def test_migrations_run_once_before_what_needs_them(services: dict[str, Any]) -> None:
    assert services["migrate"]["command"] == ["db", "upgrade"]
    assert services["migrate"]["restart"] == "no"
    for name in ("web", "store", "sandbox", "sweeper", "gateway"):
        assert services[name]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"


def test_parts_get_the_time_that_they_need_to_end(services: dict[str, Any]) -> None:
    for name in ("web", "store", "sandbox", "sweeper", "gateway"):
        seconds = PARTS[name.removesuffix("er")] + MARGIN_S
        assert in_seconds(services[name]["stop_grace_period"]) == seconds, name


def in_seconds(duration: str) -> int:
    """Of a duration such as 1m20s."""
    minutes, _, rest = duration.rpartition("m")
    return 60 * int(minutes or 0) + int(rest.removesuffix("s") or 0)


def test_nothing_is_published_beyond_loopback(services: dict[str, Any]) -> None:
    published = {}
    for name, service in services.items():
        for port in service.get("ports", []):
            # Compose 1 shows a string, Compose 2 a table
            published[name] = port.split(":")[0] if isinstance(port, str) else port["host_ip"]
    assert published == dict.fromkeys(("redis", "web", "gateway", *OBSERVE), "127.0.0.1")


def test_our_containers_hold_no_rights(services: dict[str, Any]) -> None:
    for name, service in services.items():
        if name not in ("redis", "postgres"):
            assert service["cap_drop"] == ["ALL"], name
            assert service["read_only"] is True, name


@pytest.mark.parametrize("service", OBSERVE)
def test_what_operators_look_at_does_not_start_without_its_secret(
    services: dict[str, Any], service: str
) -> None:
    words = services[service].get("entrypoint") or services[service]["command"]
    shell = ["/bin/sh", "-c", words[2].replace("$$", "$").split("exec ")[0]]
    assert words[:2] == shell[:2]
    environ = {key: str(value or "") for key, value in services[service]["environment"].items()}
    refused = subprocess.run(shell, env=environ, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1
    assert "in .env" in refused.stderr


def test_files_for_prometheus_and_grafana_are_there(root: Path, services: dict[str, Any]) -> None:
    for name in OBSERVE:
        for volume in services[name].get("volumes", []):
            source = volume.split(":")[0] if isinstance(volume, str) else volume["source"]
            if "deploy" in source:
                assert any(Path(source).iterdir()), source
    assert (root / "deploy" / "flower" / "Dockerfile").is_file()


def test_the_image_has_the_python_of_students_work(root: Path) -> None:
    """Where `find_python` looks for it: beside the environment of the server."""
    steps = (root / "Dockerfile").read_text("utf-8")
    assert "python -m venv --without-pip /srv/venv/sandbox" in steps
    assert "-r requirements-sandbox.lock" in steps


def test_bodies_of_requests_wait_on_a_disk_not_in_memory(services: dict[str, Any]) -> None:
    for name in ("web", "gateway"):
        spool, mounts = services[name]["environment"]["TMPDIR"], services[name]["volumes"]
        targets = [mount.split(":")[1] if isinstance(mount, str) else mount["target"] for mount in mounts]
        assert spool in targets
        assert spool not in services[name]["tmpfs"]
