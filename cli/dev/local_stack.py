"""The whole system on one machine: Redis if none is there, the database, and every part supervised."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any
from urllib.parse import urlsplit

import requests

from cli.dev.embedded_redis import SupervisedRedis
from cli.dev.supervisor import GRACE_S, Part, Supervisor, part_argv
from cli.settings import KEPT_KEY, Settings, forget_redis, own_secret_key, remember_redis
from grading.broker import redis_acl
from grading.broker.dispatch import open_dispatch
from grading.config.redis_url import watched
from grading.config.settings import Config
from grading.domain.errors import ConfigError, GraderError
from grading.store import Store, schema
from grading.store.accounts import users

LOOPBACK = ("127.0.0.1", "localhost", "::1")
ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class System:
    """Starts everything of config.toml here and keeps it running; a context manager ends it in order.

    `first_password` is set when the first administrator was made just now; `key_notice` says where a secret
    key is kept that was.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        engine: str | None = None,
        port: int | None = None,
        folder: Path,
        own_redis: bool = False,
        machines: bool = True,
    ) -> None:
        self.settings = settings
        self.engine = engine
        self.folder = folder.resolve()
        self.config = settings.with_engine(engine)
        self.port = port or self.config.server.port
        self.url = f"http://127.0.0.1:{self.port}"
        self.first_password: str | None = None
        self.key_notice = ""
        self._own_redis = own_redis
        self._machines = machines
        self._redis: SupervisedRedis | None = None
        self._supervisor: Supervisor | None = None
        self._ended = threading.Event()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> System:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _refuse_taken_port(self.config.server.host, self.port)
        self._on_signals(_interrupt)  # without, being ended now would leave processes behind
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self) -> None:
        environ = {**os.environ, "GRADER_SECRET_KEY": self._secret_key()}
        environ["GRADER_DATABASE_URL"] = self.config.database.url
        environ["GRADER_REDIS_URL"] = self._redis_url()
        schema.upgrade(self.config.database.url)
        store = Store(self.config.database.url)
        with store.write() as session:
            self.first_password = users.ensure_administrator(session)
        store.close()
        self._supervisor = Supervisor(self.folder, environ)
        for part in self._server_parts():
            self._supervisor.start(part)
        if self._machines:
            self.start_machines()
        threading.Thread(target=self._supervisor.keep_running, daemon=True).start()

    def _secret_key(self) -> str:
        key, made = own_secret_key(self.folder)
        if made:
            kept = self.folder / KEPT_KEY
            self.key_notice = f"GRADER_SECRET_KEY is not set. A generated key is kept in {kept}."
        return key

    def _redis_url(self) -> str:
        """The configured Redis, or an embedded one when that is on loopback and not there."""
        url = self.config.redis.url
        parts = urlsplit(url)
        occupied = (
            watched(url) or parts.hostname not in LOOPBACK or listens(parts.hostname, parts.port or 6379)
        )
        if occupied and not self._own_redis:
            redis_acl.refuse_open(url)
            return url
        self._redis = SupervisedRedis(self.folder / "redis")
        remember_redis(self.folder, self._redis.url)
        return self._redis.url

    def _server_parts(self) -> list[Part]:
        web = ("web", "--port", str(self.port), "--var", str(self.folder))
        others = ["store", "sweep", *(["sandbox"] if self.config.sandbox.backend != "none" else [])]
        others += ["gateway"] if self.config.gateway.enabled else []
        return [self._part("web", *web), *(self._part(name, name) for name in others)]

    def start_machines(self) -> None:
        """Start the worker of every machine here."""
        assert self._supervisor is not None
        engine = ("--engine", self.engine) if self.engine else ()
        self._machines = True
        for machine in self.config.machines:
            self._supervisor.start(
                self._part(f"worker-{machine.name}", "worker", machine.name, "--grace", str(GRACE_S), *engine)
            )
            if machine.prefill and not engine:
                self._supervisor.start(self._part(f"prefill-{machine.name}", "prefill", machine.name))

    def _part(self, name: str, *command: str) -> Part:
        return Part(name, part_argv(sys.executable, self.settings.path, command))

    def until_ready(
        self, timeout_s: float, progress: Callable[[int, int], None] = lambda _done, _total: None
    ) -> None:
        """Return when uploads are accepted and every machine sends heartbeats.

        `progress` is called with the number of those that do, and of all.
        """
        dispatch = open_dispatch(self._running_config())
        deadline = time.monotonic() + timeout_s
        while True:
            machines = dispatch.machines() if self._machines else []
            away = [s.name for s in machines if not s.alive]
            away += [] if accepts_uploads(self.url) else ["the web app"]
            progress(len(machines) + 1 - len(away), len(machines) + 1)
            if not away:
                return
            if time.monotonic() > deadline:
                raise GraderError(
                    f"Not running after {timeout_s:.0f} s: {', '.join(away)}. See {self.folder}."
                )
            time.sleep(0.2)

    @property
    def redis_url(self) -> str:
        """The Redis that was really taken."""
        return self._redis.url if self._redis else self.config.redis.url

    def _running_config(self) -> Config:
        redis = self.config.redis.model_copy(update={"url": self.redis_url})
        return self.config.model_copy(update={"redis": redis})

    def wait(self) -> None:
        """Return when somebody asks the system to end, by Ctrl-C or SIGTERM."""

        def end(_number: int, _frame: FrameType | None) -> None:
            self._ended.set()

        self._on_signals(end)
        self._ended.wait()

    def _on_signals(self, do: Callable[[int, FrameType | None], None]) -> None:
        """What SIGTERM, Ctrl-C and a closed terminal do; only the main thread may say so."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in ENDS:
            before = signal.getsignal(number)
            if before == signal.SIG_IGN:
                continue  # nohup
            self._before.setdefault(number, before)
            signal.signal(number, do)

    def _stop(self) -> None:
        self._on_signals(_patience)
        try:
            if self._supervisor is not None:
                self._supervisor.stop()
            if self._redis is not None:
                self._redis.stop()
                forget_redis(self.folder)
        finally:
            for number, before in self._before.items():
                signal.signal(number, before)
            self._before.clear()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _patience(_number: int, _frame: FrameType | None) -> None:
    """Everything is ending already; a second Ctrl-C would leave processes behind."""


def accepts_uploads(url: str) -> bool:
    """Whether the web app at this address is ready."""
    try:
        return requests.get(f"{url}/readyz", timeout=5).ok
    except requests.RequestException:
        return False


def listens(host: str | None, port: int) -> bool:
    """Whether something accepts connections there."""
    try:
        with socket.create_connection((host or "127.0.0.1", port), timeout=2):
            return True
    except OSError:
        return False


def _refuse_taken_port(host: str, port: int) -> None:
    if listens("127.0.0.1" if host == "0.0.0.0" else host, port):  # noqa: S104 - compared, not bound
        raise ConfigError(f"Port {port} is in use. Choose another one with --port.")
