"""Changes of what a machine uses, on this computer without SSH: one at a time, kept or put back."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cli.deploy.deployment import Deployment, Options
from cli.deploy.releases import Change, Lock
from cli.deploy.remote import deploy as there
from cli.deploy.remote import releases, service
from cli.deploy.services import services_of
from cli.deploy.ssh import MachineError, Remote
from cli.settings import Settings
from grading.broker.connections import connect
from grading.broker.heartbeats import Heartbeat
from grading.broker.leases import Leases
from grading.config.settings import Machine, Ssh
from tests.support.system import until

SLOW = "trap 'sleep 2.5; exit' TERM; sleep 1000 & wait"
MACHINE = Machine.model_validate(
    {"name": "lab-1", "grace_s": 5, "stages": {"feedback": {"engine": "rules", "model": "r"}}}
)


class Here(Remote):
    """This computer as a machine."""

    def argv(self, command: Iterable[str]) -> list[str]:
        """The command line as it is: nothing stands between."""
        return list(command)


@dataclass(frozen=True)
class Changes:
    """A machine's folder, and the changes of it."""

    folder: Path
    remote: Remote

    def to(self, version: str, *names: str, does: str = "exec sleep 1000") -> dict[str, Any]:
        """A release whose services all run one script."""
        content = {"command": ["/bin/sh", "-c", does], "folder": str(self.folder), "environment": {}}
        services = [
            {"name": name, "kind": "supervised", "content": json.dumps(content), "stop_s": 5.0}
            for name in names or ("worker-lab-1",)
        ]
        texts = {"config": "", "secrets": "", "ca": "", "used": version}
        return {"version": version, "environment": "/usr", "services": services, **texts}

    def begin(self, wanted: dict[str, Any] | None, say: Callable[[str], None] = str) -> Change:
        """Start a change, which is put back unless it is kept."""
        return Change(self.remote, services_of(MACHINE, self.remote), wanted, say)

    def keep(self, wanted: dict[str, Any]) -> None:
        """Change to a release that is well."""
        with self.begin(wanted) as change:
            change.begun()
            change.keep()

    def one(self, name: str = "worker-lab-1") -> service.Supervised:
        """A service there."""
        return service.Supervised(self.folder, name, 5.0)

    @property
    def version(self) -> str:
        """The release in use."""
        return os.path.realpath(self.folder / "current").rpartition("/")[2]


@pytest.fixture
def changes(tmp_path: Path) -> Iterator[Changes]:
    folder = tmp_path / "there"
    folder.mkdir()
    ssh = Ssh(host="127.0.0.1", folder=str(folder), python=sys.executable)
    yield Changes(folder, Here("lab-1", ssh))
    for path in (folder / "var").glob("*.service.json"):
        service.Supervised(folder, path.name.removesuffix(".service.json"), 0.1).stop()


def test_nobody_deploys_until_a_change_that_was_broken_off_is_put_back(changes: Changes) -> None:
    changes.keep(changes.to("good"))
    change = changes.begin(changes.to("better", does=SLOW))
    assert change.begun().version == "better"
    change.close()  # the connection ends; the machine goes on
    lock = Lock(changes.remote, "0123456789ab")
    try:
        assert changes.version == "good"
        assert changes.one().state()["running"]
    finally:
        lock.close()


@pytest.fixture
def umask() -> Iterator[None]:
    """That of this process, which programs for machines set for themselves."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_a_change_that_does_not_end_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(there, "CHANGE_S", 0.0)
    monkeypatch.setattr(releases, "WAIT_S", 0.0)
    releases.take(tmp_path)
    assert there.main(str(tmp_path), "hold", "ada", "0123456789ab") == 1
    assert "refused: an earlier deployment is still running there" in capsys.readouterr().err
    assert releases.main(str(tmp_path), "activate") == 1
    assert "refused: another deployment is still changing this machine" in capsys.readouterr().err


def test_what_ended_before_it_was_kept_is_a_failure(changes: Changes) -> None:
    changes.keep(changes.to("good"))
    with changes.begin(changes.to("better")) as change:
        change.begun()
        os.killpg(changes.one().pid(), signal.SIGKILL)
        until(lambda: changes.version == "good" and changes.one().pid(), 20, "the release before is back")
        with pytest.raises(
            MachineError, match="the new release stopped right after its start, so the previous release"
        ):
            change.keep()


def test_a_service_that_the_new_release_does_not_have_ends_and_comes_back_with_the_old_one(
    changes: Changes,
) -> None:
    worker, prefill = changes.one(), changes.one("prefill-lab-1")
    changes.keep(changes.to("both", worker.name, prefill.name))
    assert prefill.pid()
    said: list[str] = []
    with changes.begin(changes.to("one"), said.append) as change:
        change.begun()
        assert "stopping prefill-lab-1; it is no longer needed" in said
        assert prefill.state() == {"installed": False, "running": False, "pid": 0, "detail": ""}
    until(lambda: changes.version == "both" and prefill.pid() and worker.pid(), 20, "both are back")
    Lock(changes.remote, "0123456789ab").close()

    changes.keep(changes.to("one"))
    with changes.begin(None) as change:
        assert change.begun().version == "both"
        assert prefill.pid()
    until(lambda: changes.version == "one" and worker.pid(), 20, "the worker is back alone")
    Lock(changes.remote, "0123456789ab").close()
    assert not prefill.state()["installed"]


def test_a_release_in_use_that_does_not_beat_is_not_said_to_have_none_before_it(changes: Changes) -> None:
    wanted = changes.to("good")
    changes.keep(wanted)
    changes.one().stop()
    with changes.begin(wanted) as change, pytest.raises(MachineError) as failed:
        assert change.begun().changed == []
        change.until(lambda: False, 0.1, "sent no heartbeat")
    assert str(failed.value) == (
        "lab-1: nothing changed, but the current release sent no heartbeat within 0 s. "
        "See `grader cluster logs lab-1`, or use --rollback."
    )


def test_a_worker_that_started_during_a_deployment_is_not_the_new_one(
    changes: Changes, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADER_REDIS_URL", redis_url)
    path = tmp_path / "config.toml"
    path.write_text(
        "[[machines]]\nname = 'lab-1'\n[machines.stages]\nanalysis = { engine = 'rules', model = 'r' }\n"
        "feedback = { engine = 'rules', model = 'r' }\n"
    )
    options = Options(wait_s=0.1)
    made = Deployment(Settings(path), MACHINE, changes.remote, options, {}, str, lambda _done, _total: None)
    with made as one:
        one.run(one.steps()[0])
        with connect(redis_url) as client:
            Leases(client).heartbeat(Heartbeat("started since", "lab-1", 2, 0, {}))
        one._begin(changes.to("good"))
        with pytest.raises(MachineError, match=r"the new release sent no heartbeat within"):
            one._wait()
