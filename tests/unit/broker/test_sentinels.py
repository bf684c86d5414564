"""Connections to the primary of a Redis with a successor, against sockets that play the servers."""

from __future__ import annotations

import socket
import threading
from contextlib import closing

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

from grading.broker.sentinels import DIAL_S, Place, PrimaryConnection, Sentinels, primary_pool
from grading.config.redis_url import parse


class Promoting(Sentinels):
    """Sentinels that name another primary each time, and the last one for good."""

    def __init__(self, primaries: list[Place]) -> None:
        super().__init__(parse("redis+sentinel://server:x@127.0.0.1:1/grader/0"))
        self.primaries = primaries

    def discover_master(self, service_name: str) -> Place:
        return self.primaries.pop(0) if len(self.primaries) > 1 else self.primaries[0]


def answer_one(server: socket.socket) -> None:
    accepted, _ = server.accept()
    with closing(accepted):
        accepted.recv(1000)
        accepted.sendall(b"+PONG\r\n")


def test_a_command_that_is_tried_again_goes_to_the_primary_of_now() -> None:
    with socket.create_server(("127.0.0.1", 0)) as lost, socket.create_server(("127.0.0.1", 0)) as promoted:
        answering = threading.Thread(target=answer_one, args=(promoted,), daemon=True)
        answering.start()
        pool = SentinelConnectionPool(
            "grader",
            Promoting([lost.getsockname(), promoted.getsockname()]),
            connection_class=PrimaryConnection,
            protocol=2,
            driver_info=None,
            socket_timeout=0.2,
            retry=Retry(NoBackoff(), 1),
        )
        with Redis.from_pool(pool) as client:
            assert client.ping()  # its first try waits for an answer of the host that is lost
        answering.join(30)


def test_a_host_that_is_gone_is_not_dialled_for_longer_whatever_a_client_asks_for() -> None:
    address = parse("redis+sentinel://server:x@127.0.0.1:1/grader/0")
    for asked, given in ((5, DIAL_S), (None, DIAL_S), (0.5, 0.5)):
        pool = primary_pool(address, socket_connect_timeout=asked)
        assert pool.connection_kwargs["socket_connect_timeout"] == given
