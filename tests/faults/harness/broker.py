"""What can happen to Redis: it dies, forgets, is full, or delivers messages more than once."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from redis import Redis
from redis.exceptions import RedisError

from cli.dev.embedded_redis import RedisProcess, start_redis
from grading.broker.celery_app import INBOX
from grading.broker.connections import connect
from grading.broker.leases import RESULTS, result_key
from workers.server.inbox import RUN_ID

COPY = "copy-of-a-test"
LAST = "all-was-sent"
LISTEN_S = 15.0


@dataclass
class Broker:
    """A Redis with an append-only file, and its faults."""

    folder: Path
    process: RedisProcess
    client: Redis
    also: str = ""
    """An address beside loopback on which it listens."""

    @property
    def url(self) -> str:
        """Where it answers; the same after a restart."""
        return self.process.url

    def crash(self) -> None:
        """kill -9."""
        os.killpg(self.process.process.pid, signal.SIGKILL)
        self.process.process.wait(60)

    def start(self) -> None:
        """Start it again on the same file and port."""
        password = unquote(urlsplit(self.url).password or "")
        self.process = start_redis(self.folder, self.process.port, password)
        self.listen()

    def listen(self) -> None:
        """Listen on the further address, too, if that is there now and Redis is up."""
        if self.also:
            with suppress(RedisError):
                self.client.config_set("bind", f"127.0.0.1 {self.also}")

    def forget_everything(self) -> None:
        """FLUSHALL."""
        self.client.flushall()

    def fill(self) -> None:
        """No command that needs memory works any more."""
        self.client.config_set("maxmemory", 1)

    def empty(self) -> None:
        """As much memory as before."""
        self.client.config_set("maxmemory", 0)


@contextmanager
def running_broker(folder: Path) -> Iterator[Broker]:
    """A Redis of one's own."""
    process = start_redis(folder)
    broker = Broker(folder, process, connect(process.url))
    try:
        yield broker
    finally:
        broker.client.close()
        broker.process.stop()


@dataclass
class Duplicator:
    """Sends a copy of every message that anybody sends, one to four times, each as a message of its own."""

    url: str
    seed: int
    copies: Counter[str] = field(default_factory=Counter)
    """task id, or what a machine tells of a run -> copies sent"""
    _stop: threading.Event = field(default_factory=threading.Event)
    _results: dict[str, str] = field(default_factory=dict)
    _own: Counter[str] = field(default_factory=Counter)

    def __enter__(self) -> Duplicator:
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="duplicator", daemon=True)
        self._thread.start()
        assert ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(RedisError), connect(self.url) as client:
            client.echo(LAST)  # when the thread hears this, it has heard all before
        self._thread.join(4 * LISTEN_S)
        self._stop.set()
        self._thread.join(2 * LISTEN_S)

    def _run(self, ready: threading.Event) -> None:
        choose = random.Random(self.seed)
        listening = Redis.from_url(self.url, decode_responses=True, socket_timeout=LISTEN_S)
        sending = connect(self.url)
        while not self._stop.is_set():
            with suppress(RedisError), listening.monitor() as monitor:  # type: ignore[no-untyped-call]
                ready.set()
                while not self._stop.is_set():
                    command = monitor.next_command()["command"]
                    if LAST in command:
                        self._stop.set()
                    self._copy(sending, command, choose.randint(1, 4))
            self._stop.wait(0.1)  # Redis is away
        listening.close()
        sending.close()

    def _copy(self, client: Redis, command: str, times: int) -> None:
        word, _, rest = command.partition(" ")
        name, _, raw = rest.partition(" ")
        if word.upper() == "SET" and name.startswith(RESULTS):
            self._results[name] = raw[: raw.rindex("}") + 1].replace("\\\\", "\\")
        if word.upper() == "LPUSH" and name.startswith(INBOX) and RUN_ID.fullmatch(raw):
            self._copy_result(client, name.removeprefix(INBOX), raw, times)
        if word.upper() != "LPUSH" or not raw.startswith(('{"body"', '{"kind"')):
            return
        message: dict[str, Any] = json.loads(raw.replace("\\\\", "\\"))
        if name.startswith(INBOX):
            self._copy_told(client, name, message, times)
            return
        if COPY in message["headers"]:
            return
        message["headers"][COPY] = True
        for _ in range(times):
            message["properties"]["delivery_tag"] = str(uuid.uuid4())
            client.lpush(name, json.dumps(message))
            self.copies[message["headers"]["id"]] += 1

    def _copy_result(self, client: Redis, machine: str, run_id: str, times: int) -> None:
        """A result, which the server deletes when it wrote it down, and the entry that names it."""
        if self._own[run_id]:
            self._own[run_id] -= 1  # this is such a copy
            return
        for _ in range(times):
            client.set(result_key(machine, run_id), self._results[result_key(machine, run_id)])
            client.lpush(f"{INBOX}{machine}", run_id)
            self._own[run_id] += 1
            self.copies[f"result {run_id}"] += 1

    def _copy_told(self, client: Redis, name: str, said: dict[str, Any], times: int) -> None:
        """What a machine tells the server; the mark stands beside what is signed."""
        if COPY in said:
            return
        for _ in range(times):
            client.lpush(name, json.dumps({**said, COPY: True}))
            self.copies[f"{said['kind']} {json.loads(said['body']).get('run_id')}"] += 1
