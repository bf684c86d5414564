"""`grader deploy` and `grader cluster` against a real sshd, a real Redis and a real worker."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections import Counter
from pathlib import Path

import pytest
import redis
from sqlalchemy import select

from bench.tiny_models import make_model
from cli.deploy.file_transfer import DEPLOY_SCRIPT
from cli.deploy.services import SERVICE_SCRIPT
from cli.deploy.ssh import MachineError, Remote, Unreachable
from cli.dev.embedded_redis import free_port
from cli.dev.local_stack import System
from cli.settings import Settings
from grading.config.settings import Ssh
from grading.store import Store
from grading.store.tables import Run
from tests.integration.deploy.conftest import ENVIRONMENT, Site
from tests.support.commands import Grader
from tests.support.engines import ask, quiet
from tests.support.remote_prefill import SECRET, writing
from tests.support.ssh_server import SshServer
from tests.support.system import ASSIGNMENT, assert_graded_once, count_final, furnish, until
from workers.machine.engines.remote_prefill.protocol import SECRET_VARIABLE

READS = """
[machines.prefill]
listen = "127.0.0.1:{listen}"
models = ["{model}"]
"""


def test_a_machine_from_nothing_to_its_heartbeat_and_back(site: Site, grader: Grader, redis_url: str) -> None:
    assert "not deployed" in grader("cluster", "status", "lab-1").out
    assert "run `grader deploy` first" in grader("cluster", "start", "lab-1").error
    assert "lab-1: there is no log." in grader("cluster", "logs", "lab-1").error

    first = grader("deploy", "lab-1", "--environment", ENVIRONMENT)
    assert first.status == 0, first.error
    assert [line[:4] for line in first.out.splitlines()[:-1]] == [f"{n}/8 " for n in range(1, 9)]
    assert "started, heartbeat after" in first.out
    assert "lab-1: grader.env, config.toml, program, packages, service changed" in first.out
    secrets = site.there / "grader.env"
    assert secrets.read_text() == f"GRADER_REDIS_URL='{redis_url}'\n"
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o600
    service = (site.there / "var" / "worker-lab-1.service.json").read_text()
    assert redis_url not in service

    pid = site.there / "var" / "worker-lab-1.pid"
    before = pid.read_text()
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()  # until it sends the next heartbeat, none is known
    again = grader("deploy", "lab-1", "--environment", ENVIRONMENT)
    assert "running; nothing changed\nlab-1: nothing changed\n" in again.out
    assert pid.read_text() == before

    (row,) = json.loads(grader("cluster", "status", "lab-1", "--json").out)
    assert row["ok"] is True
    assert (row["ssh"], row["service"], row["model"]) == ("ok", "running (supervised)", "none needed")
    assert row["heartbeat"].endswith(" s ago")
    assert row["version"].endswith("(as here)")

    restarted = grader("cluster", "restart")
    assert (restarted.status, restarted.error) == (0, "")
    assert "lab-1: restarted, heartbeat after" in restarted.out
    assert "lab-2: skipped, it has no [machines.ssh] in config.toml" in restarted.out
    assert pid.read_text() != before

    before = pid.read_text()
    site.write(more="# another line", other_slots=7)
    same = grader("deploy", "lab-1", "--environment", ENVIRONMENT)
    assert same.out.endswith("lab-1: nothing changed\n"), same.out
    assert pid.read_text() == before
    site.write(slots=3)
    changed = grader("deploy", "lab-1", "--environment", ENVIRONMENT)
    assert "stopping worker-lab-1; it has 20 s" in changed.out
    assert "restarted, heartbeat after" in changed.out
    assert changed.out.endswith("lab-1: config.toml changed\n")

    shown = grader("cluster", "logs")
    assert shown.status == 0, shown.error
    assert "consumes the queues machine.lab-1" in shown.out

    assert "lab-1: stopped after" in grader("cluster", "stop", "lab-1").out
    assert "lab-1: was not running" in grader("cluster", "stop", "lab-1").out
    table = grader("cluster", "status")
    assert table.status == 1
    assert "stopped" in table.out
    assert "not managed" in table.out
    log = (site.there / "var" / "worker-lab-1.log").read_text()
    assert "consumes the queues" in log
    assert "Traceback" not in log


@pytest.mark.soak  # as one service; the second runs in tests/e2e/machine/test_remote_prefill.py
def test_a_machine_that_reads_for_others_has_a_second_service(
    site: Site, grader: Grader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    port, model = free_port(), make_model(tmp_path / "model")
    site.write(more=READS.format(listen=port, model=model))
    missing = grader("deploy", "lab-1", "--environment", ENVIRONMENT)
    assert (
        f"{SECRET_VARIABLE} must be set to the same 16 or more characters on both machines" in missing.error
    )
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    first = grader("deploy", "lab-1", "--environment", ENVIRONMENT)
    try:
        assert first.status == 0, first.error
        assert "program changed, packages changed, service changed" in first.out
        assert "; prefill started, listening" in first.out
        assert f"{SECRET_VARIABLE}='{SECRET}'\n" in (site.there / "grader.env").read_text()
        assert SECRET not in (site.there / "var" / "prefill-lab-1.service.json").read_text()
        with writing(model, f"127.0.0.1:{port}") as hybrid:
            made = hybrid.generate(ask(str(model), schema={}, max_output_tokens=2), quiet)
        assert made.details["remote_prefill"].strategy == "disaggregated", made.details["remote_prefill"]

        monkeypatch.delenv(SECRET_VARIABLE)  # what is there stays
        again = grader("deploy", "lab-1", "--environment", ENVIRONMENT)
        assert "nothing changed; prefill runs, listening\nlab-1: nothing changed\n" in again.out
        (row,) = json.loads(grader("cluster", "status", "lab-1", "--json").out)
        assert (row["ok"], row["service"]) == (True, "running (supervised)\nprefill running (supervised)")

        assert "lab-1, prefill: stopped after" in grader("cluster", "stop", "lab-1").out
        assert json.loads(grader("cluster", "status", "lab-1", "--json").out)[0]["ok"] is False
        assert "lab-1, prefill: listening" in grader("cluster", "start", "lab-1").out
    finally:
        grader("cluster", "stop", "lab-1")


@pytest.mark.soak
def test_a_restart_under_load_runs_nothing_twice(
    site: Site, grader: Grader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, instant = 24, "[machines.engines.instant]\noptions = { seconds = 0.4 }\n[machines.stages]"
    text = site.config.read_text().replace("[machines.stages]", instant)
    site.config.write_text(text.replace('engine = "rules"', 'engine = "instant"'))
    monkeypatch.setenv("GRADER_DATABASE_URL", f"sqlite:///{tmp_path / 'grader.db'}")
    settings = Settings(site.config)
    with System(settings, folder=tmp_path / "var", port=free_port(), machines=False) as system:
        store = Store(settings.config.database.url)
        client = furnish(store, system.url)
        system.until_ready(60)
        deployed = grader("deploy", "lab-1", "--environment", ENVIRONMENT)
        assert deployed.status == 0, deployed.error
        for number in range(count):
            client.submit({"work.R": f"# {number}\nmean(sales)".encode()}, ASSIGNMENT, f"s-{number}")
        until(lambda: count_final(store) >= 2, 30, "the first grades")
        restarted = grader("cluster", "restart", "lab-1")
        assert (restarted.status, restarted.error) == (0, "")
        assert count_final(store) < count
        until(lambda: count_final(store) >= count, 60, f"all end; see {tmp_path}")
        assert_graded_once(store, count)
        with store.read() as session:
            assert Counter(session.scalars(select(Run.state))) == {"done": 2 * count}
        store.close()
        grader("cluster", "stop", "lab-1")


def test_a_worker_that_does_not_come_up_shows_its_log(
    site: Site, grader: Grader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "environment" / "bin"
    broken.mkdir(parents=True)
    (broken / "python").write_text("#!/bin/sh\necho 'no module named celery \033[2J' >&2; exit 3\n")
    (broken / "python").chmod(0o755)
    said = grader(
        "deploy",
        "lab-1",
        "--environment",
        str(broken.parent),
    )
    assert said.status == 1
    assert (
        "lab-1: the new release stopped right after its start; there is no previous release. Fix "
        "it and deploy again. Its log ends:\nno module named celery [2J" in said.error
    )


def test_a_dry_run_reaches_nothing(site: Site, grader: Grader) -> None:
    site.write(port=free_port())
    said = grader("deploy", "lab-1", "--dry-run", "--offline")
    assert said.status == 0
    assert "4/8 packages: install the locked packages into an environment, from wheels" in said.out
    assert not site.there.exists()


def test_machines_that_cannot_be_reached_are_said_why(
    site: Site, grader: Grader, server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = server.write_config("stranger_config", identity="stranger")
    monkeypatch.setenv("GRADER_SSH_CONFIG", str(stranger))
    assert "does not accept this computer's key. Run `ssh-copy-id" in grader("deploy", "lab-1").error

    monkeypatch.setenv("GRADER_SSH_CONFIG", str(server.write_config("unknown_config", known=False)))
    said = grader("cluster", "start", "lab-1").error
    assert "The host key of lab-1" in said
    assert "compare the fingerprint" in said

    other = server.write_config("other_config")
    hosts = server.folder / "other_hosts"
    hosts.write_text(f"[127.0.0.1]:{server.port} {(server.folder / 'stranger.pub').read_text()}")
    other.write_text(other.read_text().replace(str(server.folder / "known_hosts"), str(hosts)))
    monkeypatch.setenv("GRADER_SSH_CONFIG", str(other))
    assert "has a new host key" in grader("cluster", "stop", "lab-1").error

    monkeypatch.setenv("GRADER_SSH_CONFIG", str(server.write_config("alone_config")))
    site.write(port=free_port())
    said = grader("cluster", "restart", "lab-1").error
    assert "cannot be reached: " in said
    assert "Connection refused" in said
    (row,) = json.loads(grader("cluster", "status", "lab-1", "--json").out)
    assert (row["service"], row["ok"]) == ("unknown", False)
    below = grader("cluster", "status", "lab-1").out.rpartition("┘")[2].splitlines()
    assert f"✗ lab-1: {row['problems'][0]}" in below


def test_a_machine_without_ssh_or_without_redis_is_refused(
    site: Site, grader: Grader, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "lab-2 has no [machines.ssh]" in grader("deploy", "lab-2").error
    monkeypatch.setenv("GRADER_REDIS_URL", f"redis://127.0.0.1:{free_port()}/0")
    assert "Redis does not answer" in grader("cluster", "restart", "lab-1").error
    assert '"heartbeat": "unknown"' in grader("cluster", "status", "lab-1", "--json").out


def test_hostile_words_do_not_become_commands(server: SshServer, tmp_path: Path) -> None:
    hit = tmp_path / "hit"
    words = f"it's $(touch {hit}) `touch {hit}`; touch {hit} & \\ \" * ~ \n touch {hit}"
    folder = f"{tmp_path}/it's $(cd ..;touch hit) `touch hit`; touch hit & \\ \" * ~ \n touch hit"
    hostile = Ssh.model_construct(
        host="127.0.0.1", user=server.user, port=server.port, folder=folder, python=sys.executable
    )
    remote = Remote("lab-1", hostile, str(server.config))
    assert remote.call(DEPLOY_SCRIPT, "facts")["folder"] == folder
    with pytest.raises(MachineError):
        remote.call(SERVICE_SCRIPT, "state", words, words, "1")
    assert os.listdir(tmp_path) == []
    sly = Ssh.model_construct(
        host=f"-oProxyCommand=touch {hit}", user=None, port=22, folder="~/x", python=None
    )
    with pytest.raises(Unreachable):
        Remote("lab-1", sly, str(server.config)).call(DEPLOY_SCRIPT, "facts")
    assert not hit.exists()


def test_a_machine_without_python_says_what_to_install(server: SshServer) -> None:
    ssh = Ssh(host="127.0.0.1", user=server.user, port=server.port, python="python2.7")
    with pytest.raises(MachineError, match=r"lab-1: there is no python2\.7\. Install it"):
        Remote("lab-1", ssh, str(server.config)).call(DEPLOY_SCRIPT, "facts")
