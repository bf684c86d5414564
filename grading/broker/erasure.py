"""Erasure of given submissions, rounds and runs from Redis: messages, results, leases.

Everything is looked at, because queues, unacknowledged messages, chords and results keep their ids in
different places; ids are random, so that nothing else can be hit.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import logging
import re
from collections.abc import Iterable, Iterator, Set
from typing import Any, cast

from redis import Redis
from redis.exceptions import ResponseError

log = logging.getLogger(__name__)
ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
MARKED_S = 86_400
"""Longer than any run."""


def withdrawn(run_id: str) -> str:
    """The key that keeps a machine from telling of a run again, which it does not name."""
    return f"grader:current:withdrawn:{hashlib.sha256(run_id.encode()).hexdigest()}"


def withdraw(redis: Redis, ids: Iterable[str]) -> int:
    """Remove what mentions one of these ids (32 hex digits each); returns how many entries.

    A machine that works on one of them loses its lease and leaves the work; what it answers all the same is
    ignored and withdrawn next time.
    Raises redis errors.
    """
    wanted = frozenset(ids)
    if not wanted:
        return 0
    for one in wanted:  # first of all, or a lease that was removed would be told anew
        redis.set(withdrawn(one), 1, ex=MARKED_S)
    removed = sum(_clean(redis, str(key), wanted) for key in list(redis.scan_iter(count=1000)))
    if removed:
        _forget_on_disk(redis)
    return removed


def _clean(redis: Redis, key: str, ids: Set[str]) -> int:
    if _mentions(key, ids):
        return redis.delete(key)
    kind = redis.type(key)
    if kind == "string":
        value = cast("str | None", redis.get(key))
        return redis.delete(key) if value and _mentions(value, ids) else 0
    if kind == "list":
        rows = cast("list[str]", redis.lrange(key, 0, -1))
        return sum(redis.lrem(key, 0, row) for row in set(_hit(rows, ids)))
    if kind == "hash":
        pairs = cast("dict[str, str]", redis.hgetall(key))
        fields = [name for name, value in pairs.items() if _mentions(name, ids) or _mentions(value, ids)]
        return redis.hdel(key, *fields) if fields else 0
    if kind == "zset":
        members = list(_hit(cast("list[str]", redis.zrange(key, 0, -1)), ids))
        return redis.zrem(key, *members) if members else 0
    if kind == "set":
        members = list(_hit(cast("set[str]", redis.smembers(key)), ids))
        return redis.srem(key, *members) if members else 0
    return 0


def _hit(rows: Iterable[str], ids: Set[str]) -> Iterator[str]:
    return (row for row in rows if _mentions(row, ids))


def _mentions(content: str, ids: Set[str]) -> bool:
    """Whether a text holds one of the ids, also within the encoded body of a message."""
    if not ids.isdisjoint(ID.findall(content)):
        return True
    if '"body"' not in content:
        return False
    try:
        message = json.loads(content)
    except ValueError:
        return False
    return not ids.isdisjoint(
        ID.findall(_body(message[0] if isinstance(message, list) and message else message))
    )


def _body(message: Any) -> str:
    body = message.get("body") if isinstance(message, dict) else None
    if not isinstance(body, str):
        return ""
    try:
        return base64.b64decode(body, validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return body


def _forget_on_disk(redis: Redis) -> None:
    """Have the append-only file written anew, without what was removed."""
    try:
        if redis.info("persistence").get("aof_enabled"):
            redis.bgrewriteaof()
    except ResponseError as error:
        log.warning("BGREWRITEAOF of redis failed: %s", error)
