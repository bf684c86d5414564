"""The host of the primary of Redis is gone: it refuses no connection, it answers nothing.

A stopped process whose queue of connections is full plays that: the kernel drops what asks for another one.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from cli.dev.embedded_redis import find_redis_server, free_port
from grading.broker import connections, sentinels
from grading.config.redis_url import Address, parse
from tests.support.system import until

PROMOTED_S = 6.0
GOES_ON_S = 15.0
CLIENTS = 8
URL = "redis+sentinel://server:x@127.0.0.1:1/grader/0"


class Scripted(sentinels.Sentinels):
    """Sentinels that say what the test says."""

    def __init__(self, address: Address, primary: sentinels.Place) -> None:
        super().__init__(address)
        self.primary, self.epoch = primary, 1

    def promote(self, primary: sentinels.Place) -> None:
        """Another Redis is the primary from now on."""
        self.primary, self.epoch = primary, self.epoch + 1

    def ask(self) -> list[sentinels.Told]:
        host, port = self.primary
        state = {"ip": host, "port": port, "config-epoch": self.epoch, "is_sdown": False, "is_odown": False}
        return [sentinels.Told(place, state) for place in self.address.hosts]


@contextmanager
def redis_at(place: sentinels.Place) -> Iterator[subprocess.Popen[bytes]]:
    host, port = place
    settings = ("--bind", host, "--port", str(port), "--save", "", "--tcp-backlog", "1")
    users = ("--user", "server", "on", ">x", "~*", "&*", "+@all")
    process = subprocess.Popen([find_redis_server(), *settings, *users])
    try:
        with Redis(host, port, username="server", password="x") as client:
            until(lambda: answers(client), 30, "redis answers")
        yield process
    finally:
        process.kill()
        process.wait(60)


def vanish(process: subprocess.Popen[bytes], place: sentinels.Place, waiting: ExitStack) -> None:
    """Its host answers nothing any more, until `waiting` ends."""
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        for _ in range(100):
            waiting.enter_context(socket.create_connection(place, 0.5))


def answers(client: Redis) -> bool:
    with suppress(RedisError):
        return bool(client.ping())
    return False


@pytest.mark.soak
def test_commands_go_on_when_the_host_of_the_primary_answers_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    lost, promoted = ("127.0.0.1", free_port()), ("127.0.0.1", free_port())
    with redis_at(lost) as process, redis_at(promoted), ExitStack() as waiting:
        scripted = Scripted(parse(URL), lost)
        monkeypatch.setattr(sentinels, "sentinels_of", lambda _address: scripted)
        client, stop = connections.connect(URL), threading.Event()
        took: list[list[float]] = [[] for _ in range(CLIENTS)]
        threads = [threading.Thread(target=use, args=(client, stop, one), daemon=True) for one in took]
        for thread in threads:
            thread.start()
        until(lambda: all(len(one) > 2 for one in took), 30, "all clients use the primary")
        cut = time.monotonic()
        vanish(process, lost, waiting)
        stop.wait(PROMOTED_S)
        scripted.promote(promoted)
        until(lambda: all(one[-1] > cut + PROMOTED_S for one in took), 120, "all clients use the successor")
        pauses = [min(at for at in one if at > cut + PROMOTED_S) - cut for one in took]
        print({"seconds from the cut to the first success": sorted(round(one, 1) for one in pauses)})
        stop.set()
        for thread in threads:
            thread.join(60)
        client.close()
    assert max(pauses) <= GOES_ON_S


def use(client: Redis, stop: threading.Event, successes: list[float]) -> None:
    """Command after command, as a heartbeat does; when each succeeded."""
    while not stop.is_set():
        with suppress(RedisError):
            client.set("key", "value")
            successes.append(time.monotonic())
        stop.wait(0.3)
