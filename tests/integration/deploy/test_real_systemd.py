"""Releases under the systemd of a user, on a machine that booted and whose sshd is its own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.deploy.releases import Change
from cli.deploy.services import services_of
from cli.deploy.ssh import MachineError, Remote
from grading.config.settings import Machine, Ssh
from tests.support.bare_host import OPERATOR, Host, bare_hosts
from tests.support.system import until

pytestmark = pytest.mark.soak

RELAY = """
import os, socket, sys, threading
there = socket.create_connection(("127.0.0.1", 22))
def out():
    while data := there.recv(65536):
        os.write(1, data)
    os._exit(0)
threading.Thread(target=out, daemon=True).start()
while data := os.read(0, 65536):
    there.sendall(data)
"""
UNIT = """
[Service]
ExecStart=/home/{user}/grader/environment/bin/python
Restart=always
RestartSec=2
[Install]
WantedBy=default.target
"""


def way_to(host: Host, folder: Path) -> Remote:
    """SSH to a host whose network is its own."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")], check=True)
    host.write(".ssh/authorized_keys", (folder / "key.pub").read_text(), mode=0o600)
    (folder / "relay.py").write_text(RELAY)
    (folder / "known_hosts").write_text(f"one {host.read('/etc/ssh/ssh_host_ed25519_key.pub')}")
    relay = f"nsenter --target {host.leader} --net {sys.executable} {folder}/relay.py"
    (folder / "config").write_text(
        f"Host one\n  IdentityFile {folder}/key\n  UserKnownHostsFile {folder}/known_hosts\n"
        f"  HostKeyAlgorithms ssh-ed25519\n  ProxyCommand {relay}\n"
    )
    return Remote("lab-1", Ssh(host="one", user=OPERATOR), str(folder / "config"))


def wanted(environment: str) -> dict[str, Any]:
    """A release whose worker is the Python of an environment."""
    unit = {"name": "worker-lab-1", "kind": "systemd", "content": UNIT.format(user=OPERATOR), "stop_s": 30.0}
    texts = {"config": "", "secrets": "", "ca": "", "used": environment}
    return {
        "version": environment,
        "environment": f"/home/{OPERATOR}/{environment}",
        "services": [unit],
        **texts,
    }


def test_a_release_that_ends_gives_way_to_the_one_before(tmp_path: Path) -> None:
    machine = Machine.model_validate(
        {"name": "lab-1", "stages": {"feedback": {"engine": "rules", "model": "r"}}}
    )
    with bare_hosts() as hosts:
        host = hosts.add("one", 11)
        remote, said = way_to(host, tmp_path), list[str]()
        services = services_of(machine, remote)
        host.write("good/bin/python", "#!/bin/sh\nexec sleep 1000\n", mode=0o755)
        host.write("bad/bin/python", "#!/bin/sh\necho gone wrong; exit 3\n", mode=0o755)
        with pytest.raises(MachineError, match=f"run there once: sudo loginctl enable-linger {OPERATOR}"):
            services[0].do("ready")
        host.run(f"sudo loginctl enable-linger {OPERATOR}")
        until(lambda: host.try_run("systemctl --user is-system-running").returncode == 0, 60, "systemd runs")
        assert services[0].do("ready").kind == "systemd"

        with Change(remote, services, wanted("good"), said.append) as change:
            assert change.begun().started == ["worker-lab-1"]
            change.keep()
        first = services[0].do("state")
        assert (first.running, first.version) == (True, "good")

        with (
            Change(remote, services, wanted("bad"), said.append) as change,
            pytest.raises(MachineError) as failed,
        ):
            change.begun()
            change.until(lambda: False, 60, "sent no heartbeat")
        assert (
            "the new release stopped right after its start, so the previous release, good, runs again"
            in str(failed.value)
        )
        assert "gone wrong" in str(failed.value)
        assert said == ["stopping worker-lab-1; it has 100 s to finish or return its runs"]
        again = services[0].do("state")
        assert (again.running, again.version) == (True, "good")
        assert again.pid != first.pid

        host.write("better/bin/python", "#!/bin/sh\nexec sleep 1000\n", mode=0o755)
        with Change(remote, services, wanted("better"), said.append) as change:
            change.begun()
            assert services[0].do("state").version == "better"
        # the connection ended before anybody knew whether it is well
        until(lambda: services[0].do("state").version == "good", 60, "the release before is used again")
        until(lambda: services[0].do("state").running, 60, "and runs")
        with services[0].logs(100, follow=False) as session:
            shown = [json.dumps(line.decode()) for line in iter(lambda: session.line(60), None)]
        assert any("gone wrong" in line for line in shown)

        both = wanted("better")
        both["services"].append({**both["services"][0], "name": "prefill-lab-1"})
        unit, prefill = "grader-prefill-lab-1.service", replace(services[0], part="prefill")
        for one, enabled in ((both, True), (wanted("good"), False)):
            with Change(remote, services, one, said.append) as change:
                change.begun()
                change.keep()
            assert prefill.do("state").running is enabled
            assert (host.try_run(f"systemctl --user is-enabled {unit}").returncode == 0) is enabled
        assert not prefill.do("state").installed
