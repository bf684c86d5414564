"""Counts of requests that all web processes share: their keys in Redis, and connections of their own.

It gives up soon: a request that is counted must not wait long for a Redis that hangs.
"""

from __future__ import annotations

from redis import ConnectionPool, Redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, ConnectionError, RedisError, TimeoutError
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


def answers(pool: ConnectionPool) -> bool:
    """Whether Redis answers on one of these connections within PATIENCE_S, be it with a refusal."""
    try:
        Redis(connection_pool=pool).ping()
    except AuthenticationError:
        return True
    except (ConnectionError, TimeoutError):
        return False
    except RedisError:
        return True
    return True
