"""A machine that is reached over a real sshd, with a real Redis, and the commands that look after it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.commands import Grader, in_process
from tests.support.ssh_server import SshServer, ssh_server

CONFIG = """
[[machines]]
name = "lab-1"
slots = {slots}
grace_s = 20
[machines.stages]
analysis = {{ engine = "{engine}", model = "rules" }}
feedback = {{ engine = "rules", model = "rules" }}
[machines.ssh]
host = "127.0.0.1"
user = "{user}"
port = {port}
folder = "{folder}"
python = "{python}"
service = "{service}"
{more}
"""
UNMANAGED = """
[[machines]]
name = "lab-2"
slots = {other_slots}
[machines.stages]
analysis = {{ engine = "rules", model = "rules" }}
"""
ENVIRONMENT = str(Path(sys.executable).parent.parent)


@pytest.fixture
def grader(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Grader:
    """Run a command in this process."""
    return in_process(monkeypatch, capfd)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("ssh")) as running:
        yield running


@dataclass(frozen=True)
class Site:
    """The operator's computer and, in `there`, the folder of Grader on the machine."""

    server: SshServer
    config: Path
    there: Path

    def write(self, more: str = "", **changed: object) -> None:
        """Write config.toml, with other values than those that work."""
        values = {
            "user": self.server.user,
            "port": self.server.port,
            "folder": self.there,
            "python": sys.executable,
            "more": more,
            "slots": 2,
            "engine": "rules",
            "service": "supervised",
            "other_slots": 1,
        }
        self.config.write_text((CONFIG + UNMANAGED).format(**{**values, **changed}))


@pytest.fixture
def site(
    server: SshServer,
    tmp_path: Path,
    redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
    grader: Grader,
) -> Iterator[Site]:
    made = Site(server, tmp_path / "config.toml", tmp_path / "there")
    made.write()
    monkeypatch.setenv("GRADER_CONFIG", str(made.config))
    monkeypatch.setenv("GRADER_REDIS_URL", redis_url)
    monkeypatch.setenv("GRADER_SSH_CONFIG", str(server.config))
    yield made
    if (made.there / "var" / "worker-lab-1.service.json").exists():
        monkeypatch.setenv("GRADER_SSH_CONFIG", str(server.config))
        made.write()
        grader("cluster", "stop", "lab-1")
