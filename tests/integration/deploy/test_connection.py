"""What runs on a machine ends with the connection, over a real sshd."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from cli.deploy.remote import guard
from cli.deploy.services import MachineService
from cli.deploy.ssh import MachineError, Remote
from grading.config.settings import Machine, Ssh
from tests.support.ssh_server import SshServer, ssh_server
from tests.support.system import until

WORKS = """
import os, pathlib, subprocess, sys
with subprocess.Popen(["sleep", "600"]) as started:
    pathlib.Path(sys.argv[2]).write_text(f"{os.getpid()} {started.pid}")
"""
ENDS_ITSELF = """
import pathlib, sys
print("up", flush=True)
sys.stdin.read()
pathlib.Path(sys.argv[2]).write_text("put back")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("ssh")) as running:
        yield running


@pytest.fixture
def remote(server: SshServer, tmp_path: Path) -> Remote:
    ssh = Ssh(
        host="127.0.0.1", user=server.user, port=server.port, folder=str(tmp_path), python=sys.executable
    )
    return Remote("lab-1", ssh, str(server.config))


def gone(path: Path) -> bool:
    """Whether the processes that wrote their ids there have ended."""
    return not any(Path(f"/proc/{pid}").exists() for pid in path.read_text().split())


def works(tmp_path: Path) -> tuple[Path, Path]:
    """A program that does something for minutes, with another one, and where it writes their ids."""
    (tmp_path / "works.py").write_text(WORKS)
    return tmp_path / "works.py", tmp_path / "pids"


def call(remote: Remote, program: Path, pids: Path) -> None:
    remote.call(program, str(pids), timeout_s=1)


def feed(remote: Remote, program: Path, pids: Path) -> None:
    """With more input than the program takes."""
    with remote.session(program, str(pids)) as session:
        until(lambda: pids.exists() and pids.read_text().count(" ") == 1, 20, "it runs")
        session.send(bytes(1_000_000))
    raise MachineError("no answer")


@pytest.mark.parametrize("way", [call, feed])
def test_a_program_there_ends_with_what_it_started(
    remote: Remote, tmp_path: Path, way: Callable[[Remote, Path, Path], None]
) -> None:
    program, pids = works(tmp_path)
    with pytest.raises(MachineError, match="no answer"):
        way(remote, program, pids)
    until(lambda: gone(pids), 2 * guard.TERM_S + 4, "both have ended")


def test_a_program_may_put_things_back_first(remote: Remote, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(ENDS_ITSELF)
    with remote.session(tmp_path / "program.py", str(tmp_path / "said"), own_s=20) as session:
        assert session.line(60) == b"up\n"
    until((tmp_path / "said").exists, 10, "it has put things back")


@pytest.mark.soak
def test_a_program_ends_when_nothing_is_heard_any_more(
    server: SshServer, remote: Remote, tmp_path: Path
) -> None:
    """The network is cut: no end of the connection is seen, for as long as TCP waits."""
    program, pids = works(tmp_path)
    alone = Remote("lab-1", remote.ssh, str(server.write_config("alone_config")))
    with alone.session(program, str(pids)) as session:
        until(pids.exists, 20, "it runs")
        os.kill(session.pid, signal.SIGSTOP)
        until(lambda: gone(pids), guard.SILENCE_S + 10, "both have ended")


def test_a_program_that_fails_is_explained(remote: Remote, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("raise ValueError('odd')")
    with pytest.raises(MachineError, match="ValueError: odd"):
        remote.call(tmp_path / "program.py")
    (tmp_path / "program.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(MachineError, match="ended with status 1"):
        remote.call(tmp_path / "program.py")


def test_a_log_is_followed_until_nobody_looks(remote: Remote, tmp_path: Path) -> None:
    machine = Machine.model_validate(
        {"name": "lab-1", "stages": {"feedback": {"engine": "rules", "model": "r"}}}
    )
    supervised = replace(remote, ssh=remote.ssh.model_copy(update={"service": "supervised"}))
    (tmp_path / "var").mkdir()
    log, stopped = tmp_path / "var" / "worker-lab-1.log", Event()
    log.write_text("".join(f"line {number}\n" for number in range(150)))
    with MachineService(machine, supervised).logs(100, follow=True) as session:
        lines = session.lines(stopped)
        assert next(lines) == b"line 50\n"
        for _ in range(99):
            next(lines)
        with log.open("a") as more:
            more.write("it goes on\n")
        assert next(lines) == b"it goes on\n"
        tails = [one for one in Path("/proc").glob("[0-9]*/cmdline") if str(log).encode() in content(one)]
        assert tails
    until(lambda: not any(path.exists() for path in tails), 10, "nobody follows it any more")


def content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
