"""Kombu's Redis transport that discards messages which this system did not send.

Celery would take some of these messages into its hands and never give them back, and others would end the
worker; both would let one bad message stop a machine.
"""

from __future__ import annotations

import base64
import json
import logging
import queue
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis
from redis.exceptions import ResponseError
from redis.sentinel import SentinelConnectionPool

from grading.broker.sentinels import PrimaryConnection, PrimarySSLConnection, primary_pool
from grading.config.redis_url import Address

log = logging.getLogger(__name__)
BROKEN = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What reading a message raises when it has not the shape of one."""
THROWN_AWAY = "a message on %s was discarded: %s"
UNREADABLE = "it could not be decoded ({})"
TEXT, MAYBE = str, str | None
NEXT = "grader_next"
"""A header of runs that go to the end of the queue that is read next."""
HEADERS: Mapping[str, Any] = {
    "task": TEXT,
    "id": TEXT,
    "root_id": MAYBE,
    "parent_id": MAYBE,
    "group": MAYBE,
    "eta": MAYBE,
    "expires": MAYBE,
    "retries": int | None,
    "timelimit": list | None,
    "argsrepr": MAYBE,
    "kwargsrepr": MAYBE,
    # never used here; unpacking could fill the memory
    "compression": type(None),
}


class Unwanted(ValueError):
    """A message that is not executed; its text says why."""


def check(message: Any) -> None:
    """Raise one of BROKEN unless this is a message as this system sends it: a JSON body in an envelope."""
    if message["content-type"] != "application/json" or message["content-encoding"] != "utf-8":
        raise Unwanted(f"content of type {str(message['content-type'])[:60]!r}; only JSON is read")
    properties, headers = message["properties"], message["headers"]
    if not isinstance(properties["delivery_tag"], str) or properties["body_encoding"] != "base64":
        raise Unwanted("an envelope of another kind")
    body = json.loads(base64.b64decode(message["body"]))
    if not isinstance(headers, Mapping):
        raise Unwanted("headers of another shape")
    if "task" not in headers:
        return  # an answer to an operator's question to the workers
    if not str(headers["task"]).startswith("grader."):
        raise Unwanted(f"no task of this system: {str(headers['task'])[:60]!r}")
    for name, kinds in HEADERS.items():
        if not isinstance(headers.get(name), kinds):
            raise Unwanted(f"a header {name} of another kind")
    args, kwargs, embed = body
    if not (isinstance(args, list) and isinstance(kwargs, dict) and isinstance(embed, dict | None)):
        raise Unwanted("arguments of another shape")


class QoS(redis.QoS):
    """Settles messages, and gives their places back also where Redis refuses that.

    A message that is not settled would keep its place until the next connection: a worker that reads as many
    messages as it has threads would read one less for each, and in the end none.
    """

    def ack(self, delivery_tag: str) -> None:
        """Settle a message that was worked on."""
        with self._giving_back(delivery_tag):
            super().ack(delivery_tag)  # type: ignore[no-untyped-call]

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Settle a message that nobody is to work on, or that others are to have."""
        with self._giving_back(delivery_tag):
            super().reject(delivery_tag, requeue)  # type: ignore[no-untyped-call]

    def restore_visible(self, *args: Any, **kwargs: Any) -> None:
        """Give out again what was taken long ago; not on machines, which may not write to queues."""
        if not self.channel.takes_only:
            super().restore_visible(*args, **kwargs)  # type: ignore[no-untyped-call]

    @contextmanager
    def _giving_back(self, delivery_tag: str) -> Iterator[None]:
        try:
            yield
        except ResponseError as error:
            log.warning(
                "redis refused a command; a message stays unacknowledged and will be redelivered: %s", error
            )
            self._quick_ack(delivery_tag)

    def _remove_from_indices(self, delivery_tag: str, pipe: Any = None) -> Any:
        """Without a transaction: in one, a Redis that is out of memory refuses even what frees some."""
        if pipe is not None:
            return super()._remove_from_indices(delivery_tag, pipe)  # type: ignore[no-untyped-call]
        with self.channel.conn_or_acquire() as client:
            plain = client.pipeline(transaction=False)
            return super()._remove_from_indices(delivery_tag, plain)  # type: ignore[no-untyped-call]


class Channel(redis.Channel):
    """Reads queues, and survives what it finds in them."""

    QoS = QoS
    takes_only = False
    """Of a machine's worker: it takes messages and settles them, and writes to no queue."""
    from_transport_options: tuple[str, ...] = (  # type: ignore[assignment]
        *redis.Channel.from_transport_options,
        "takes_only",
        "returned",
    )
    returned: Callable[[Any], tuple[str, str] | None] | None = None
    """Where such a worker puts a message that it took and does not work on, and what it says there."""

    @contextmanager
    def conn_or_acquire(self, client: Any = None) -> Iterator[Any]:
        """One client for all commands: making one takes longer than most commands. Threads may share it."""
        yield client or self._commands

    @cached_property
    def _commands(self) -> Any:
        return self._create_client()  # type: ignore[no-untyped-call]

    def _do_restore_message(
        self, payload: Any, exchange: str, routing_key: str, pipe: Any, leftmost: bool = False
    ) -> None:
        if not self.takes_only:
            super()._do_restore_message(payload, exchange, routing_key, pipe, leftmost)  # type: ignore[no-untyped-call]
        elif self.returned and (said := self.returned(payload)):
            pipe.lpush(*said)

    def _queue_bind(self, exchange: str, *others: Any) -> None:
        # nobody looks up those of queues: messages are sent to them by their names
        if not self.takes_only or self.typeof(exchange).type == "fanout":  # type: ignore[no-untyped-call]
            super()._queue_bind(exchange, *others)  # type: ignore[no-untyped-call]

    def _put(self, queue: str, message: Any, **kwargs: Any) -> None:
        if not (message.get("headers") or {}).get(NEXT):
            super()._put(queue, message, **kwargs)  # type: ignore[no-untyped-call]
            return
        key = self._q_for_pri(queue, 0)  # type: ignore[no-untyped-call]
        if batch := kwargs.get("_publish_batch"):
            batch.add("rpush", key, json.dumps(message))
            return
        with self.conn_or_acquire() as client:
            client.rpush(key, json.dumps(message))

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)  # type: ignore[no-untyped-call]
        except BROKEN as error:
            # taken off the queue already, so that is the end of it; its content is not repeated in the log
            log.error(THROWN_AWAY, "a queue", UNREADABLE.format(type(error).__name__))
            _not_taken(self)
            raise queue.Empty from None


class Transport(redis.Transport):
    """Kombu's transport with that channel."""

    Channel = Channel
    # a Redis that is out of memory, or cannot write to its disk, is as good as away; Celery would end
    # the worker
    connection_errors = (*redis.Transport.connection_errors, ResponseError)

    def _deliver(self, message: Any, name: str) -> None:
        try:
            check(message)
            super()._deliver(message, name)  # type: ignore[no-untyped-call]
        except BROKEN as error:
            why = str(error) if isinstance(error, Unwanted) else UNREADABLE.format(type(error).__name__)
            log.error(THROWN_AWAY, name, why)
            for channel in self.channels:
                _not_taken(channel)
            self._forget(message)

    def _forget(self, message: Any) -> None:
        """Celery may have taken it into its hands before it failed on it."""
        properties = message.get("properties") if isinstance(message, Mapping) else None
        tag = properties.get("delivery_tag") if isinstance(properties, Mapping) else None
        for channel in self.channels:
            if isinstance(tag, str) and tag in channel.qos._delivered:
                channel.basic_ack(tag)


class SentinelChannel(Channel, redis.SentinelChannel):
    """The same by way of sentinels, as our other clients go."""

    connection_class = PrimaryConnection
    connection_class_ssl = PrimarySSLConnection  # type: ignore[assignment]
    from_transport_options = (*Channel.from_transport_options, "address", "successor_s")  # type: ignore[assignment]
    address: Address
    successor_s = 0.0
    """How long a connection waits for a primary; a worker has nothing better to do."""

    def _sentinel_managed_pool(self, asynchronous: bool = False) -> SentinelConnectionPool:
        params = self._connparams(asynchronous)  # type: ignore[no-untyped-call]
        options = {key: value for key, value in params.items() if key not in ("host", "port")}
        return primary_pool(self.address, **options, successor_s=self.successor_s)


class SentinelTransport(Transport, redis.SentinelTransport):
    """Kombu's transport for sentinels with that channel."""

    Channel = SentinelChannel


def _not_taken(channel: Any) -> None:
    """Whoever counts what is taken learns that the last one was no message."""
    if callable(thrown := getattr(channel._queue_cycle, "thrown_away", None)):
        thrown()


def install() -> None:
    """Use this transport for Redis from now on, in this process."""
    TRANSPORT_ALIASES.update(
        redis=f"{__name__}:Transport",
        rediss=f"{__name__}:Transport",
        sentinel=f"{__name__}:SentinelTransport",
    )
