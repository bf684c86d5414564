"""Who views a submission now: a sorted set for each submission, by Redis' clock, which forgets by itself.

All of it may be lost at any time.
"""

from __future__ import annotations

from typing import cast

from redis import Redis

from grading.broker.lua_scripts import Script

VIEWERS = "grader:viewers:"
"""And a submission: the ids of users, by the second in which they last viewed it."""
VIEWS_S = 30
"""A user who was not seen for so long views it no more."""
MOST = 20
"""Viewers of a submission that are told."""

# KEYS: viewers of a submission; ARGV: user, seconds until a view is over, how many others to tell
_VIEW = """
local now = tonumber(redis.call('TIME')[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[2])
return redis.call('ZREVRANGE', KEYS[1], 0, ARGV[3])
"""


def view(redis: Redis, submission_id: str, user_id: int) -> tuple[int, ...]:
    """Record that a user views a submission; the ids of the others who do. Raises redis errors."""
    found = Script(redis, _VIEW)([VIEWERS + submission_id], [user_id, VIEWS_S, MOST])
    return tuple(one for one in map(int, cast("list[str]", found)) if one != user_id)
