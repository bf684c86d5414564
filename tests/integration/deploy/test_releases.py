"""Releases of a machine: kept, gone back to, put back by themselves; one deployment at a time."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from cli.deploy.releases import Lock
from cli.deploy.services import Heartbeats
from cli.deploy.ssh import MachineError, remote_of
from cli.settings import Settings
from tests.integration.deploy.conftest import ENVIRONMENT, Grader, Site
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


def test_a_release_that_does_not_start_gives_way_to_the_one_before(
    site: Site, grader: Grader, tmp_path: Path
) -> None:
    assert deploy(grader).status == 0
    config, before = (site.there / "config.toml").read_text(), beats(site)
    site.write(slots=5)
    hangs = broken(tmp_path / "hangs", "exec sleep 600")
    failed = deploy(grader, "--wait", "1", environment=hangs)
    assert failed.status == 1
    assert "lab-1: the new release sent no heartbeat within 1 s, so " in failed.error
    assert ", the one before, runs again. Correct it and deploy again; --wait gives it more" in failed.error
    assert (site.there / "config.toml").read_text() == config
    site.write()
    until(lambda: beats(site) - before, 20, "the release before sends heartbeats again")
    assert "runs and heartbeats; nothing had changed\nlab-1: nothing changed\n" in deploy(grader).out


def test_an_operator_goes_back(site: Site, grader: Grader) -> None:
    nothing = grader("deploy", "lab-1", "--rollback")
    assert "lab-1: there is no release here to go back to" in nothing.error
    assert deploy(grader).status == 0
    site.write(slots=3)
    assert deploy(grader).status == 0
    back = grader("deploy", "lab-1", "--rollback")
    assert back.status == 0, back.error
    assert "started again; heartbeats after" in back.out
    assert "lab-1: config.toml changed" in back.out
    assert "slots = 2\n" in (site.there / "config.toml").read_text()
    assert len(os.listdir(site.there / "states")) == 2


def test_a_second_deployment_is_told_of_the_first(site: Site, grader: Grader) -> None:
    remote = remote_of(Settings(site.config).config.machine("lab-1"))
    (site.there / "environments" / ".new-old").mkdir(parents=True)
    lock = Lock(remote, "0123456789ab")
    assert os.listdir(site.there / "environments") == []  # what was left behind
    begun = time.monotonic()
    said = deploy(grader)
    assert "process " in said.error
    assert "has been deploying to it for " in said.error
    assert "wait until that has ended, or end it there: its lock ends with its connection." in said.error
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


def test_all_machines_at_the_same_time_with_their_authority(
    site: Site, grader: Grader, tmp_path: Path
) -> None:
    (tmp_path / "authority.pem").write_text("a certificate\n")
    fails = FAILS.format(user=site.server.user, port=site.server.port)
    redis = f'[redis]\nca_file = "{tmp_path}/authority.pem"\n'
    site.config.write_text(redis + site.config.read_text() + fails)
    said = grader("deploy", "--all", "--environment", ENVIRONMENT)
    assert said.status == 1
    assert "lab-1 8/8 start: started; heartbeats after" in said.out
    rows = [line for line in said.out.splitlines() if line.startswith("│")]
    assert [row.split("│")[1].strip() for row in rows] == ["lab-1", "lab-3"]
    assert "1/8 machine" in rows[1]
    assert "✗ lab-3: there is no python2.7. Install it" in said.error
    assert said.error.endswith("grader: 1 of 2 machines failed.\n")
    kept = site.there / "state" / "ca.pem"
    assert kept.read_text() == "a certificate\n"
    assert kept.stat().st_mode & 0o777 == 0o600
    config = (site.there / "config.toml").read_text()
    assert f'ca_file = "{kept}"' in config
    assert "host" not in config
