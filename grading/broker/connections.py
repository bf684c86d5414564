"""All connections to Redis but those of the queue's library (grading/broker/kombu_transport.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redis import ConnectionPool, Redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from grading.broker.sentinels import primary_pool, sentinels_of
from grading.config import redis_url


def connect(url: str) -> Redis:
    """A client that gives up after seconds, not minutes. Connects at the first use."""
    return Redis.from_pool(
        open_pool(
            url,
            socket_connect_timeout=5,
            socket_timeout=5,
            retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), 3),
            retry_on_error=[RedisConnectionError, RedisTimeoutError],
            decode_responses=True,
        )
    )


def open_pool(url: str, **options: Any) -> ConnectionPool:
    """Connections to Redis, or to the primary of sentinels, with these options of redis-py."""
    if redis_url.watched(url):
        return primary_pool(redis_url.parse(url), **options)
    return ConnectionPool.from_url(url, **options)


def when_primary_changes(url: str, call: Callable[[], None]) -> None:
    """Have a method called, by another thread, each time that a successor of Redis is promoted."""
    if redis_url.watched(url):
        sentinels_of(redis_url.parse(url)).when_changed(call)
