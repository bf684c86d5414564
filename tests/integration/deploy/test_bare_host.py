"""The bare servers of tests/support/bare_host.py: booted, on a network of their own, gone afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bare_host import CommandFailed, bare_hosts
from tests.support.system import alive, until

pytestmark = pytest.mark.soak


def test_servers_boot_reach_each_other_and_are_gone() -> None:
    with bare_hosts() as hosts:
        server, spark = hosts.add("server", 5), hosts.add("spark", 11)
        assert server.run("systemctl is-system-running; sudo id --user; hostname") == "running\n0\nserver\n"
        assert server.run("python3 --version").startswith("Python 3.11.")
        with pytest.raises(CommandFailed, match="exit status 3"):
            server.run("exit 3")
        assert "SSH-2.0" in server.run(f"head --bytes 7 < /dev/tcp/{spark.address}/22")
        server.write("note/one", "two")
        assert spark.run("ls") == ""
        assert (server.files / "home/debian/note/one").read_text() == "two"
        # services of users need a session, and packages a way out
        assert server.run("systemctl --user is-system-running --wait") == "running\n"
        server.run("sudo apt-get update -q && sudo apt-get install -q -y bubblewrap")
        assert (
            server.run("bwrap --unshare-user --unshare-pid --ro-bind / / --proc /proc echo alone")
            == "alone\n"
        )
        folders = [host.folder for host in (server, spark)]
        mounted = [host.leader for host in (server, spark)]
    assert not [folder for folder in folders if folder.exists()]
    assert not [pid for pid in mounted if Path("/proc", str(pid), "root/etc").exists()]
    assert str(folders[0]) not in Path("/proc/mounts").read_text()


KILLED = """
from tests.support.bare_host import bare_hosts
with bare_hosts() as hosts:
    print(hosts.add("server", 5).leader, flush=True)
    input()
"""


def test_a_server_ends_with_the_tests_that_are_killed(root: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as tests:
        assert tests.stdout is not None
        leader = int(tests.stdout.readline())
        assert alive(leader)
        tests.kill()
    until(lambda: not alive(leader), 10, "the server ends")
    with bare_hosts() as hosts:
        kept = [folder.name for folder in hosts.add("server", 5).folder.parent.iterdir()]
    assert [name for name in kept if name.startswith(f"{tests.pid}-")] == []
