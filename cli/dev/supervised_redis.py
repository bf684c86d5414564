"""The embedded Redis as a supervised part: started again when it ends, at the same address with its data."""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cli.dev.embedded_redis import START_S, STOP_S, RedisProcess, RedisUnavailable, start_redis
from cli.dev.supervisor import LONGEST_WAIT_S, STEADY_S

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
            log.warning("redis ended with status %s; starting it again", code)
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
                log.warning("redis cannot be started, trying again: %s", error)
                wait_s = min(max(wait_s * 2, 0.25), LONGEST_WAIT_S)
                continue
            if self._stopping.is_set():
                self._redis.stop()
            return self._redis
        return None


def _first_start(folder: Path) -> tuple[Address, RedisProcess]:
    """At the address of before; at another port where a stranger took that meanwhile."""
    known = _read(folder / ADDRESS)
    if known is not None:
        try:
            return known, start_redis(folder, known.port, known.password)
        except RedisUnavailable:
            if _is_free(known.port):
                raise
    address = Address(_choose_port(), known.password if known else secrets.token_urlsafe(24))
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
