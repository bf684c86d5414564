"""Counts of requests that all web processes share: their keys in Redis, and connections of their own.

It gives up soon: a request that is counted must not wait long for a Redis that hangs.
"""

from __future__ import annotations

from redis import ConnectionPool
from redis.backoff import NoBackoff
from redis.retry import Retry

from grading.broker.connections import open_pool

RATE_COUNTS = "grader:rates"
"""The beginning of all keys; each lives as long as its limit's period."""
PATIENCE_S = 1.0


def open_rate_counts(url: str) -> ConnectionPool:
    """Connections for counting; they are made at the first use."""
    return open_pool(
        url, socket_connect_timeout=PATIENCE_S, socket_timeout=PATIENCE_S, retry=Retry(NoBackoff(), 0)
    )
