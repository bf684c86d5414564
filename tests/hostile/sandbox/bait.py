"""What a program in a sandbox must not reach, laid out where it would find it if it could."""

from __future__ import annotations

import os
import secrets
import selectors
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from grading.execution.values import Execution

NOT_PRIVATE = Path("/var/tmp")
"""Bait is readable for everyone there: only the sandbox keeps it from a program."""


@dataclass
class Listener:
    """Sockets of every kind a server has; says the secret to whoever comes, and notes that somebody came."""

    secret: str
    folder: Path
    contacts: list[str] = field(default_factory=list)
    tcp: int = 0
    udp: int = 0
    unix: str = ""
    abstract: str = ""

    def __post_init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._callers: list[socket.socket] = []
        self._stop, self._stopped = socket.socketpair()
        self._selector.register(self._stopped, selectors.EVENT_READ, "stop")
        for kind, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
            self.tcp = self._open(kind, family, socket.SOCK_STREAM, self.tcp) or self.tcp
        for kind, family in (("udp", socket.AF_INET), ("udp6", socket.AF_INET6)):
            self.udp = self._open(kind, family, socket.SOCK_DGRAM, self.udp) or self.udp
        self.unix, self.abstract = str(self.folder / "server.sock"), f"grader-{secrets.token_hex(4)}"
        for kind, address in (("unix", self.unix), ("abstract", "\0" + self.abstract)):
            sock = socket.socket(socket.AF_UNIX)
            sock.bind(address)
            self._listen(kind, sock)
        os.chmod(self.unix, 0o777)
        self._thread = threading.Thread(target=self._serve, name="bait", daemon=True)
        self._thread.start()

    def _open(self, kind: str, family: socket.AddressFamily, how: socket.SocketKind, port: int) -> int:
        """The port; 0 where this machine has no IPv6."""
        sock = socket.socket(family, how)
        try:
            sock.bind(("127.0.0.1" if family == socket.AF_INET else "::1", port))
        except OSError:
            sock.close()
            return 0
        self._listen(kind, sock)
        return int(sock.getsockname()[1])

    def _listen(self, kind: str, sock: socket.socket) -> None:
        if sock.type == socket.SOCK_STREAM:
            sock.listen(64)
        sock.setblocking(False)
        self._selector.register(sock, selectors.EVENT_READ, kind)

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data == "stop":
                    return
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                self.contacts.append(key.data)
                if sock.type == socket.SOCK_STREAM:
                    connection, _ = sock.accept()
                    connection.sendall(self.secret.encode())
                    # closed before the caller's words are read, it would be reset and the secret lost
                    self._callers.append(connection)
                else:
                    _, address = sock.recvfrom(1000)
                    sock.sendto(self.secret.encode(), address)

    def close(self) -> None:
        """Stop listening."""
        self._stop.close()
        self._thread.join()
        for caller in self._callers:
            caller.close()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()


@dataclass
class Bait:
    """A folder with files, a process and sockets."""

    folder: Path
    secret: str
    marker: str
    """What programs print when they got through somewhere."""
    listener: Listener
    sentinel: subprocess.Popen[bytes]
    _before: dict[str, tuple[object, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._before = self._files()

    def filled(self, text: str) -> str:
        """A program with the places it asks for."""
        values = {
            "REACHED": self.marker,
            "FOLDER": str(self.folder),
            "SENTINEL": str(self.sentinel.pid),
            "SERVER": str(os.getpid()),
            "TCP": str(self.listener.tcp),
            "UDP": str(self.listener.udp),
            "UNIX": self.listener.unix,
            "ABSTRACT": self.listener.abstract,
            "HOST": "127.0.0.2",
        }
        for name, value in values.items():
            text = text.replace(f"@{name}@", value)
        return text

    def reached_in(self, execution: Execution) -> tuple[str, ...]:
        """Lines that came out of a sandbox and must not have."""
        text = execution.model_dump_json().replace("\\n", "\n")
        found = [line for line in text.split("\n") if self.secret in line or self.marker in line]
        return tuple(line[:300] for line in found)

    def harm(self) -> list[str]:
        """What happened outside: files that changed, callers, the sentinel's end."""
        after = self._files()
        paths = sorted(self._before.keys() | after.keys())
        found = [f"{p}: changed" for p in paths if self._before.get(p) != after.get(p)]
        found += [f"{kind}: somebody came" for kind in self.listener.contacts]
        if self.sentinel.poll() is not None or _state(self.sentinel.pid) != "S":
            found.append("the sentinel does not wait any more")
        return found

    def _files(self) -> dict[str, tuple[object, ...]]:
        found: dict[str, tuple[object, ...]] = {}
        for path in self.folder.rglob("*"):
            state = path.lstat()
            content = path.read_bytes() if path.is_file() else b""
            found[str(path)] = (state.st_mode, state.st_uid, state.st_nlink, state.st_mtime_ns, content)
        return found


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@contextmanager
def laid() -> Iterator[Bait]:
    """Lay it out; this process's environment holds the secret, too."""
    secret = f"canary-{secrets.token_hex(12)}"
    folder = Path(tempfile.mkdtemp(prefix="grader-bait-", dir=NOT_PRIVATE))
    folder.chmod(0o777)
    for name in ("var", "submissions"):
        (folder / name).mkdir(mode=0o777)
    with sqlite3.connect(folder / "var" / "grader.db") as database:
        database.execute("CREATE TABLE secrets (secret TEXT)")
        database.execute("INSERT INTO secrets VALUES (?)", (secret,))
    database.close()
    (folder / "submissions" / "other.py").write_text(f"def total(xs):\n    return sum(xs)  # {secret}\n")
    (folder / "outside.txt").write_text(secret)
    (folder / "config.toml").write_text(f'[server]\nsecret = "{secret}"\n')
    for path in folder.rglob("*"):
        path.chmod(0o777 if path.is_dir() else 0o666)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADER_SECRET_KEY", secret)
        sentinel = subprocess.Popen(
            [sys.executable, "-c", "import signal; print(flush=True); signal.pause()", secret],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert sentinel.stdout is not None
        sentinel.stdout.readline()  # it waits now
        listener = Listener(secret, folder)
        try:
            yield Bait(folder, secret, f"through-{secrets.token_hex(8)}", listener, sentinel)
        finally:
            listener.close()
            sentinel.send_signal(signal.SIGKILL)
            sentinel.wait()
            sentinel.stdout.close()
            shutil.rmtree(folder)


def descendants(of: int | None = None) -> set[int]:
    """All processes below one, this one by default."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents.setdefault(int(fields[1]), []).append(int(entry))
    found: set[int] = set()
    waiting = [of or os.getpid()]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found.update(children)
        waiting += children
    return found
