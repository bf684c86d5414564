"""Which submission a person grades by a criterion now, so that two people at once get different ones.

A hash for each criterion of an assignment, by Redis' clock; all of it may be lost at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from redis import Redis

from grading.broker.lua_scripts import Script

CLAIMS = "grader:criterion-claims:"
"""And an assignment and a criterion: submission -> user, and the second at which the claim ends."""
CLAIM_S = 600
"""A claim ends when its person claims another submission, or after so long."""
MOST = 100
"""Submissions that are offered to a person; more people than that do not grade one criterion at once."""

# KEYS: claims of a criterion; ARGV: user, seconds until a claim ends, submissions in the order wanted.
# Answers the first one that nobody else has claimed, claimed now; nothing where others have all of them.
_CLAIM = """
local now = tonumber(redis.call('TIME')[1])
local rows = redis.call('HGETALL', KEYS[1])
local taken = {}
for i = 1, #rows, 2 do
  local user, ends = string.match(rows[i + 1], '^(%d+) (%d+)$')
  if user and user ~= ARGV[1] and tonumber(ends) > now then
    taken[rows[i]] = true
  else
    redis.call('HDEL', KEYS[1], rows[i])
  end
end
for i = 3, #ARGV do
  if not taken[ARGV[i]] then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[1] .. ' ' .. (now + ARGV[2]))
    redis.call('EXPIRE', KEYS[1], ARGV[2])
    return ARGV[i]
  end
end
return false
"""


def claim(
    redis: Redis, assignment_id: int, criterion: str, user_id: int, submissions: Sequence[str]
) -> str | None:
    """Claim the first of these submissions that nobody else has claimed; only one is claimed by a person.

    Raises redis errors.
    """
    keys = [f"{CLAIMS}{assignment_id}:{criterion}"]
    found = Script(redis, _CLAIM)(keys, [user_id, CLAIM_S, *submissions[:MOST]])
    return cast("str | None", found)
