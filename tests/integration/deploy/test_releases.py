"""Releases of a machine: kept, gone back to, put back by themselves; one deployment at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cli.deploy.file_transfer import DEPLOY_SCRIPT
from cli.deploy.releases import Lock
from cli.deploy.services import Heartbeats
from cli.deploy.ssh import MachineError, remote_of
from cli.settings import Settings
from tests.integration.deploy.conftest import ENVIRONMENT, Site
from tests.integration.deploy.test_deploy import tiny_wheel
from tests.support.commands import Grader
from tests.support.system import until


def deploy(grader: Grader, *words: str, environment: str | Path = ENVIRONMENT) -> Any:
    return grader("deploy", "lab-1", "--environment", str(environment), *words)


def broken(folder: Path, script: str) -> Path:
    """An environment whose Python does something else."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bin" / "python").chmod(0o755)
    return folder


def beats(site: Site) -> set[str]:
    """The processes of the machine that send heartbeats."""
    with Heartbeats(Settings(site.config).config) as heartbeats:
        return heartbeats.of("lab-1")


@pytest.mark.soak
def test_a_release_without_heartbeats_gives_way_to_the_one_before(
    site: Site, grader: Grader, tmp_path: Path
) -> None:
    assert deploy(grader).status == 0
    config, before = (site.there / "config.toml").read_text(), beats(site)
    site.write(slots=5)
    hangs = broken(tmp_path / "hangs", "exec sleep 600")
    failed = deploy(grader, "--wait", "1", environment=hangs)
    assert failed.status == 1
    assert "lab-1: the new release sent no heartbeat within 1 s, so " in failed.error
    assert "runs again. Fix it and deploy again, or wait longer with --wait" in failed.error
    assert (site.there / "config.toml").read_text() == config
    until(lambda: beats(site) - before, 20, "the release before sends heartbeats again")
    site.write()
    assert "running; nothing changed\nlab-1: nothing changed\n" in deploy(grader).out


@pytest.mark.soak
@pytest.mark.parametrize("after_s", [0.0, 0.15, 0.5])
@pytest.mark.parametrize("step", range(1, 9))
def test_it_can_be_broken_off_at_any_step(site: Site, grader: Grader, step: int, after_s: float) -> None:
    assert deploy(grader).status == 0
    an_older_release(site.there)
    before = beats(site)
    site.write(slots=3)
    command = [sys.executable, "-m", "cli", "deploy", "lab-1", "--environment", ENVIRONMENT]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as begun:
        assert begun.stdout is not None
        while step > 1 and not begun.stdout.readline().startswith(f"{step - 1}/8 "):
            assert begun.poll() is None
        time.sleep(after_s)  # somewhere in the step
        os.killpg(begun.pid, signal.SIGKILL)
    until(lambda: beats(site), 30, "a worker sends heartbeats")
    again = deploy(grader)
    assert again.status == 0, again.error
    assert "8/8 start: " in again.out
    assert "slots = 3\n" in (site.there / "config.toml").read_text()
    assert beats(site) - before
    left = [path for path in site.there.rglob(".new*") if path.parent.name in ("releases", "states")]
    assert not left


def an_older_release(there: Path) -> None:
    """As if another version of Grader had been deployed."""
    release, state = (there / "current").resolve(), (there / "state").resolve()
    release.rename(release.with_name("0123456789ab"))
    (state / "release").unlink()
    (state / "release").symlink_to("../../releases/0123456789ab")


@pytest.mark.soak
def test_packages_can_be_broken_off(site: Site, tmp_path: Path) -> None:
    remote = remote_of(Settings(site.config).config.machine("lab-1"))
    wheels = site.there / "wheels"
    lock = tiny_wheel(wheels).encode()
    grows = site.there / "environments"
    for _ in range(3):
        with remote.session(DEPLOY_SCRIPT, "environment", "made", "wheels") as session:
            session.send(lock)
            session.end_input()
            until(lambda: working_in(grows) and list(grows.glob(".new-*/bin")), 20, "it grows")
        until(lambda: not working_in(grows), 10, "nobody goes on with it")
    assert not (grows / "made").exists()
    remote.call(DEPLOY_SCRIPT, "environment", "made", "wheels", stdin=lock, timeout_s=120)
    python = grows / "made" / "bin" / "python"
    said = subprocess.run(
        [python, "-c", "import tiny_thing as t; print(t.SAYS)"], capture_output=True, check=True
    )
    assert said.stdout == b"hello\n"
    assert ".new-" not in (grows / "made" / "bin" / "pip").read_text()
    Lock(remote, "0123456789ab").close()
    assert os.listdir(grows) == ["made"]


def working_in(folder: Path) -> list[Path]:
    """The processes whose command names a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if str(folder).encode() in path.read_bytes():
                found.append(path.parent)
    return found


def test_a_second_deployment_is_told_of_the_first(site: Site, grader: Grader) -> None:
    remote = remote_of(Settings(site.config).config.machine("lab-1"))
    (site.there / "environments" / ".new-old").mkdir(parents=True)
    lock = Lock(remote, "0123456789ab")
    assert os.listdir(site.there / "environments") == []  # what was left behind
    begun = time.monotonic()
    said = deploy(grader)
    assert "process " in said.error
    assert "has been deploying to it for " in said.error
    assert "wait until that ends, or end it there: its lock ends with its connection." in said.error
    assert time.monotonic() - begun < 20
    lock.close()

    def free() -> bool:
        try:
            Lock(remote, "0123456789ab").close()
        except MachineError:
            return False
        return True

    until(free, 10, "the lock has ended with its connection")


FAILS = """
[[machines]]
name = "lab-3"
stages = {{ analysis = {{ engine = "rules", model = "rules" }} }}
[machines.ssh]
host = "127.0.0.1"
user = "{user}"
port = {port}
python = "python2.7"
"""


def test_all_machines_at_the_same_time_and_one_back(site: Site, grader: Grader, tmp_path: Path) -> None:
    (tmp_path / "authority.pem").write_text("a certificate\n")
    fails = FAILS.format(user=site.server.user, port=site.server.port)
    redis = f'[redis]\nca_file = "{tmp_path}/authority.pem"\n'
    site.config.write_text(redis + site.config.read_text() + fails)
    said = grader("deploy", "--all", "--environment", ENVIRONMENT)
    assert said.status == 1
    assert "lab-1 8/8 start: started, heartbeat after" in said.out
    heading, *rows = said.out.splitlines()[-3:]
    assert heading.split() == ["machine", "step", "result"]
    assert [row.split()[0] for row in rows] == ["lab-1", "lab-3"]
    assert "1/8 machine" in rows[1]
    assert "✗ lab-3: there is no python2.7. Install it" in said.error
    assert said.error.endswith("grader: 1 of 2 machines failed.\n")
    travels_with(site, "a certificate\n")

    nothing = grader("deploy", "lab-1", "--rollback")
    assert "lab-1: there is no previous release" in nothing.error
    site.config.write_text(site.config.read_text().replace("slots = 2", "slots = 3"))
    assert deploy(grader).status == 0
    back = grader("deploy", "lab-1", "--rollback")
    assert back.status == 0, back.error
    assert "restarted, heartbeat after" in back.out
    assert "lab-1: config.toml changed" in back.out
    assert "slots = 2\n" in (site.there / "config.toml").read_text()
    assert len(os.listdir(site.there / "states")) == 2


def travels_with(site: Site, authority: str) -> None:
    """The file of the certificate authority lies where the machine's config.toml says."""
    kept = site.there / "state" / "ca.pem"
    assert kept.read_text() == authority
    assert kept.stat().st_mode & 0o777 == 0o600
    config = (site.there / "config.toml").read_text()
    assert f'ca_file = "{kept}"' in config
    assert "host" not in config
