"""A real sshd on loopback with keys of its own, for one user: whoever runs the tests."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cli.dev.embedded_redis import free_port
from tests.support.services import ServiceMissing

START_S = 60.0
SHARED = "  ControlMaster auto\n  ControlPath {}/%C\n  ControlPersist 60\n"


@dataclass(frozen=True)
class SshServer:
    """A running sshd; `config` is a client's configuration that trusts it and has the right key."""

    port: int
    folder: Path
    config: Path
    user: str
    sockets: Path
    pid: int

    def write_config(
        self, name: str, *, identity: str = "user", known: bool = True, shared: bool = False
    ) -> Path:
        """A client's configuration: with another key, without the host key, or sharing one connection."""
        known_hosts = self.folder / ("known_hosts" if known else "knows_nobody")
        path = self.folder / name
        path.write_text(
            f"Host *\n  IdentityFile {self.folder / identity}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {known_hosts}\n  GlobalKnownHostsFile /dev/null\n"
            + (SHARED.format(self.sockets) if shared else "")
        )
        return path


@contextmanager
def ssh_server(
    folder: Path,
    environment: dict[str, str] | None = None,
    prefix: tuple[str, ...] = (),
    keys: str = "",
) -> Iterator[SshServer]:
    """Run sshd until the context ends; `environment` is what sessions have besides.

    `prefix` is what its command begins with, such as what puts it into a namespace; `keys` another file of
    those who may sign in.
    """
    program = shutil.which("sshd") or shutil.which("/usr/sbin/sshd")
    if program is None or shutil.which("ssh") is None:
        raise ServiceMissing("There is no OpenSSH on this machine. Run scripts/bootstrap test.")
    if os.geteuid() == 0:  # where sshd for root wants to find an empty folder
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    folder.chmod(0o700)
    for name in ("host", "user", "stranger"):
        _keygen(folder / name)
    (folder / "authorized_keys").write_bytes((folder / "user.pub").read_bytes())
    (folder / "knows_nobody").touch()
    port = free_port()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    sockets = Path(tempfile.mkdtemp(prefix="grader-ssh-"))  # pytest's folders are too long for a socket
    process = _start((*prefix, program), folder, port, environment or {}, keys)
    try:
        _wait(process, port, folder / "sshd.log")
        server = SshServer(port, folder, folder / "config", getpass.getuser(), sockets, process.pid)
        server.write_config("config", shared=True)
        yield server
    finally:
        # the connection that the clients shared
        close = ["ssh", "-F", str(folder / "config"), "-O", "exit", "-p", str(port), "127.0.0.1"]
        subprocess.run(close, capture_output=True, timeout=60, check=False)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)
        shutil.rmtree(sockets, ignore_errors=True)


def _start(
    command: tuple[str, ...], folder: Path, port: int, environment: dict[str, str], keys: str
) -> subprocess.Popen[bytes]:
    # a home of their own for the sessions: nothing of the user's is read or written
    (folder / "home").mkdir()
    session = {"HOME": str(folder / "home"), **environment}
    words = " ".join(f'"{name}={value}"' for name, value in session.items())
    lines = [
        f"Port {port}",
        "ListenAddress 127.0.0.1",
        f"HostKey {folder / 'host'}",
        f"AuthorizedKeysFile {folder / 'authorized_keys'} {keys}",
        f"PidFile {folder / 'sshd.pid'}",
        "StrictModes no",
        "UsePAM no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
        "MaxStartups 100",
        f"SetEnv {words}",
    ]
    (folder / "sshd_config").write_text("\n".join(lines) + "\n")
    with (folder / "sshd.log").open("wb") as log:
        return subprocess.Popen(
            [*command, "-D", "-e", "-f", str(folder / "sshd_config")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _keygen(path: Path) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", str(path)]
    subprocess.run(command, check=True, timeout=60)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < end:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        time.sleep(0.02)
    raise ServiceMissing(f"sshd did not start: {log.read_text(errors='replace')[-500:]}")
