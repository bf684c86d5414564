"""Redis with a successor: clients of whatever Redis the sentinels say is the primary.

A client of redis-py asks the first sentinel that answers, and only when it connects. That is too little where
a primary hangs or is cut off from its sentinels while its clients still reach it. So here the newest decision
of all sentinels counts, and a thread asks for it every second: when another Redis becomes the primary,
connections to the old one are shut, whatever waits on them fails as after any other loss, and connects again.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry
from redis.sentinel import (
    MasterNotFoundError,
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)

from grading.config.redis_url import Address

log = logging.getLogger(__name__)
LOOK_EVERY_S = 1.0
ANSWER_S = 1.0
"""How long one sentinel may take to answer."""
DIAL_S = 2.0
"""How long a connection to the primary may take to be made: its host may be gone."""
AGAIN_S = 0.25
Place = tuple[str, int]
"""Host and port."""


@dataclass(frozen=True)
class Told:
    """What one sentinel says of the set; `state` as redis-py reads `SENTINEL MASTER`, or `error` instead."""

    sentinel: Place
    state: Mapping[str, Any]
    error: RedisError | None = None

    @property
    def primary(self) -> Place:
        """Which Redis it is."""
        return str(self.state["ip"]), int(self.state["port"])

    @property
    def usable(self) -> bool:
        """Whether the sentinel reaches it."""
        return bool(self.state) and not (self.state["is_sdown"] or self.state["is_odown"])

    @property
    def age(self) -> tuple[int, bool]:
        """Larger is newer, and of the same age the one that reaches the primary counts."""
        return int(self.state["config-epoch"]), self.usable


class Sentinels(Sentinel):
    """The sentinels of one address; `discover_master` is what pools of redis-py ask for."""

    def __init__(self, address: Address) -> None:
        asking = {
            "username": address.sentinel_user or None,
            "password": address.sentinel_password or None,
            "socket_timeout": ANSWER_S,
            "socket_connect_timeout": ANSWER_S,
            "retry": Retry(NoBackoff(), 0),
            "decode_responses": True,
            **tls_options(address),
        }
        super().__init__(address.hosts, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
        self.address = address
        self._places = dict(zip(address.hosts, list(self.sentinels), strict=True))
        self._newest: Told | None = None
        self._error: RedisError | None = None
        self._sockets: weakref.WeakKeyDictionary[socket.socket, Place] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self._watching = False
        self._listeners: list[weakref.WeakMethod[Callable[[], None]]] = []

    def ask(self) -> list[Told]:
        """What each sentinel says; raises nothing."""
        return [self._ask(place, client) for place, client in self._places.items()]

    def _ask(self, place: Place, client: Redis) -> Told:
        try:
            state = cast("dict[str, Any]", client.sentinel_master(self.address.name))
        except (RedisError, IndexError) as error:
            return Told(place, {}, error if isinstance(error, RedisError) else RedisError(str(error)))
        return Told(place, state)

    def look(self) -> Told | None:
        """The newest that a sentinel says; connections to another Redis than that are shut."""
        asked = self.ask()
        told = [one for one in asked if one.state]
        self._error = next((one.error for one in asked if one.error), None)
        with self._lock:
            before, found = self._newest, self._newer(told)
            self._newest = found
            stale = [one for one, place in self._sockets.items() if found and place != found.primary]
        for one in stale:
            with suppress(OSError):  # it was closed meanwhile
                socket.socket.shutdown(one, socket.SHUT_RDWR)  # of TLS, too, whose own is for one thread only
        if before is not None and found is not None and before.primary != found.primary:
            log.warning("redis %s:%d is the primary now, before %s:%d", *found.primary, *before.primary)
            for listener in self._listeners:
                if (call := listener()) is not None:
                    call()
        return found

    def _newer(self, told: Sequence[Told]) -> Told | None:
        """What counts from now on: a sentinel that was away knows less, unless all begin anew."""
        newest = max(told, key=lambda one: one.age, default=None)
        known = self._newest
        if newest is None or known is None:
            return newest or known
        return newest if len(told) == len(self._places) or newest.age[0] >= known.age[0] else known

    def when_changed(self, call: Callable[[], None]) -> None:
        """Have a method called, by another thread, each time that another Redis became the primary."""
        self._listeners.append(weakref.WeakMethod(call))

    def discover_master(self, service_name: str) -> Place:
        """The primary. Raises MasterNotFoundError while there is none, or no sentinel answers."""
        self._watch()
        found = self._newest or self.look()
        if found is None:
            raise MasterNotFoundError(f"no sentinel answers: {self._error}") from self._error
        if not found.usable:
            raise MasterNotFoundError(f"the primary of {service_name} is down and has no successor yet")
        return found.primary

    def replicas(self) -> list[Place]:
        """Those that the first sentinel knows which answers, up or not. Raises redis errors."""
        failed: RedisError = RedisConnectionError("no sentinel answers")
        for client in self._places.values():
            try:
                rows = client.sentinel_slaves(self.address.name)
            except RedisError as error:
                failed = error
            else:
                return [(str(row["ip"]), int(row["port"])) for row in rows]
        raise failed

    def connected(self, sock: socket.socket, place: Place) -> None:
        """Shut this connection when its other end is not the primary any more."""
        with self._lock:
            self._sockets[sock] = place

    def _watch(self) -> None:
        with self._lock:
            if self._watching:
                return
            self._watching = True
        threading.Thread(target=_look_again, args=(weakref.ref(self),), name="sentinels", daemon=True).start()


def _look_again(sentinels: weakref.ref[Sentinels]) -> None:
    """The body of a thread, which ends when nobody has a connection by these sentinels any more."""
    while (found := sentinels()) is not None:
        try:
            found.look()
        except Exception:
            log.exception("the sentinels could not be asked, retrying")  # it must outlive anything
        del found
        threading.Event().wait(LOOK_EVERY_S)


_known: weakref.WeakValueDictionary[tuple[Address, int], Sentinels] = weakref.WeakValueDictionary()
_knowing = threading.Lock()


def sentinels_of(address: Address) -> Sentinels:
    """The same for all in this process."""
    with _knowing:
        key = address, os.getpid()
        found = _known.get(key)
        if found is None:
            found = _known[key] = Sentinels(address)
        return found


class _Watched:
    """A connection that the sentinels' watcher may shut, and that waits for a successor if told so."""

    def __init__(self, *, successor_s: float = 0.0, **options: Any) -> None:
        super().__init__(**options)
        self._successor_s = successor_s

    def connect(self) -> None:
        """Connect to the primary; while there is none, wait for it for at most `successor_s` seconds."""
        until = time.monotonic() + self._successor_s
        while True:
            try:
                super().connect()  # type: ignore[misc]
            except (RedisConnectionError, RedisTimeoutError):
                if time.monotonic() >= until:
                    raise
                threading.Event().wait(AGAIN_S)
            else:
                return

    def connect_check_health(self, check_health: bool = True, retry_socket_connect: bool = True) -> None:
        """Connect inside a command that lost its connection: to whatever is the primary now.

        redis-py asks the sentinels in `connect` only; a host that is gone would be dialled at each try.
        """
        one = cast(Any, self)
        if retry_socket_connect:  # `connect` has asked, and passes False
            one.connect_to(one.connection_pool.get_master_address())
        else:
            super().connect_check_health(check_health, False)  # type: ignore[misc]

    def _connect(self) -> socket.socket:
        made = cast(socket.socket, super()._connect())  # type: ignore[misc]
        # known of the pool: this Sentinels and the host that it gave
        one = cast(Any, self)
        one.connection_pool.sentinel_manager.connected(made, (one.host, one.port))
        return made


class PrimaryConnection(_Watched, SentinelManagedConnection):
    """A connection to the primary."""


class PrimarySSLConnection(_Watched, SentinelManagedSSLConnection):
    """The same with TLS."""


def primary_pool(address: Address, **options: Any) -> SentinelConnectionPool:
    """Connections to the primary, made at the first use. `options` are those of redis-py's connections."""
    kind = PrimaryConnection if address.tls is None else PrimarySSLConnection
    options["socket_connect_timeout"] = min(options.get("socket_connect_timeout") or DIAL_S, DIAL_S)
    return SentinelConnectionPool(  # type: ignore[no-untyped-call]
        address.name,
        sentinels_of(address),
        **{"connection_class": kind, **credentials(address), **tls_options(address, pool=True), **options},
    )


def credentials(address: Address) -> dict[str, Any]:
    """User, password and database of Redis, as options of redis-py."""
    return {
        "username": address.user or None,
        "password": address.password or None,
        "db": address.database,
    }


def tls_options(address: Address, *, pool: bool = False) -> dict[str, Any]:
    """TLS, as options of redis-py: of a client, or of the connections of a pool, whose class says it."""
    if address.tls is None:
        return {}
    return {**({} if pool else {"ssl": True}), **dict(address.tls)}


@contextmanager
def connected_to(address: Address, place: Place, **options: Any) -> Iterator[Redis]:
    """A client of one Redis of the set, whether it is the primary or not; it gives up after a second."""
    host, port = place
    asking = {
        "socket_timeout": ANSWER_S,
        "socket_connect_timeout": ANSWER_S,
        "retry": Retry(NoBackoff(), 0),
        "decode_responses": True,
    }
    client = Redis(host, port, **{**asking, **credentials(address), **tls_options(address), **options})
    try:
        yield client
    finally:
        client.close()
