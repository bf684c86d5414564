"""What API tokens use of the gateway, in Redis: open requests, tokens of the day, what SQL has not yet.

Days are those of UTC, by Redis' clock, as numbers since 1970. All gateways count in the same keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal, cast

from redis import Redis

from grading.broker.gateway_requests import KEYS, SIGN_S
from grading.broker.lua_scripts import Script
from grading.domain.jobs import Tokens
from grading.domain.token_use import Use, UseKey

USE = "grader:token-use:"
PENDING = f"{USE}pending"
"""DAY|TOKEN|WHAT|MODEL -> how much of it SQL does not have yet."""
KEPT_S = 2 * 86_400
"""So long the counts of a token are kept after its last request."""
EPOCH = date(1970, 1, 1)
Decision = Literal["admitted", "too_many", "spent", "unknown"]

# KEYS: open requests of a token, its tokens of the day
# ARGV: a request, most open requests, most tokens a day (0: any), tokens of today as SQL has them (-1: not
# asked), ms until a request without a reader is over, what its reader's key begins with, seconds to keep.
# Answers the decision, the day, and the seconds until the next one.
_ADMIT = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local day = math.floor(time[1] / 86400)
local left = (day + 1) * 86400 - time[1]
for _, one in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)) do
  if redis.call('EXISTS', ARGV[6] .. one .. ':reader') == 0 then redis.call('ZREM', KEYS[1], one) end
end
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return {'too_many', day, left} end
if tonumber(ARGV[3]) > 0 then
  if redis.call('EXISTS', KEYS[2]) == 0 then
    if tonumber(ARGV[4]) < 0 then return {'unknown', day, left} end
    redis.call('HSET', KEYS[2], 'day', day, 'tokens', ARGV[4])
    redis.call('EXPIRE', KEYS[2], ARGV[7])
  end
  local kept = redis.call('HMGET', KEYS[2], 'day', 'tokens')
  if tonumber(kept[1]) == day and tonumber(kept[2]) >= tonumber(ARGV[3]) then return {'spent', day, left} end
end
redis.call('ZADD', KEYS[1], now + ARGV[5], ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[7])
return {'admitted', day, left}
"""

# KEYS: the tokens of the day of an API token, what SQL has not yet
# ARGV: prompt tokens, output tokens, the API token, the model, seconds to keep
_CHARGE = """
local day = math.floor(redis.call('TIME')[1] / 86400)
if redis.call('EXISTS', KEYS[1]) == 1 then
  if tonumber(redis.call('HGET', KEYS[1], 'day')) ~= day then
    redis.call('HSET', KEYS[1], 'day', day, 'tokens', 0)
  end
  redis.call('HINCRBY', KEYS[1], 'tokens', ARGV[1] + ARGV[2])
  redis.call('EXPIRE', KEYS[1], ARGV[5])
end
local function add(what, count)
  if tonumber(count) == 0 then return end
  redis.call('HINCRBY', KEYS[2], day .. '|' .. ARGV[3] .. '|' .. what .. '|' .. ARGV[4], count)
end
add('requests', 1)
add('prompt', ARGV[1])
add('output', ARGV[2])
return 1
"""

# KEYS: what SQL has not yet; ARGV: fields and what is taken off or added, by turns
_SETTLE = """
for i = 1, #ARGV, 2 do
  if redis.call('HINCRBY', KEYS[1], ARGV[i], ARGV[i + 1]) <= 0 then redis.call('HDEL', KEYS[1], ARGV[i]) end
end
return 1
"""


@dataclass(frozen=True)
class Admission:
    """Whether a request may begin, decided on a day that ends in so many seconds."""

    decision: Decision
    day: date
    left_s: int


class TokenUse:
    """The counts of all tokens. Methods raise redis errors."""

    def __init__(self, client: Redis) -> None:
        self._redis = client
        self._admit = Script(client, _ADMIT)
        self._charge = Script(client, _CHARGE)
        self._settle = Script(client, _SETTLE)

    def admit(
        self, token_id: int, request_id: str, open_at_once: int, daily_tokens: int, so_far: int | None = None
    ) -> Admission:
        """Let a request begin, in one step, unless the token has too many open or has spent its day.

        "unknown" asks for `so_far`, the tokens of the day as SQL has them: Redis does not know the token. A
        request that was let in and has no reader for 5 s is not open any more.
        """
        args = (
            request_id, open_at_once, daily_tokens, -1 if so_far is None else so_far, int(SIGN_S * 1000),
            KEYS, KEPT_S,
        )  # fmt: skip
        decision, day, left_s = self._admit([_open(token_id), _day(token_id)], args)
        return Admission(cast(Decision, decision), EPOCH + timedelta(days=day), left_s)

    def leave(self, token_id: int, request_id: str) -> None:
        """A request is not open any more."""
        self._redis.zrem(_open(token_id), request_id)

    def charge(self, token_id: int, model: str, tokens: Tokens) -> None:
        """Count an answer, on the day it ends."""
        self._charge([_day(token_id), PENDING], [tokens.prompt, tokens.output, token_id, model, KEPT_S])

    def pending(self) -> dict[str, int]:
        """What SQL does not have yet, by field; see `by_key`."""
        found = cast("Mapping[str, str]", self._redis.hgetall(PENDING))
        return {field: int(count) for field, count in found.items()}

    def settle(self, counts: Mapping[str, int]) -> None:
        """SQL has these now; what came meanwhile stays."""
        if counts:
            self._settle([PENDING], [part for name, count in counts.items() for part in (name, -count)])


def by_key(counts: Mapping[str, int]) -> dict[UseKey, Use]:
    """Fields of `pending` put together."""
    found: dict[UseKey, dict[str, int]] = {}
    for field, count in counts.items():
        day, token, what, model = field.split("|", 3)
        key = UseKey(int(token), model, EPOCH + timedelta(days=int(day)))
        found.setdefault(key, {})[what] = count
    return {key: Use(**parts) for key, parts in found.items()}


def _open(token_id: int) -> str:
    return f"{USE}open:{token_id}"


def _day(token_id: int) -> str:
    return f"{USE}day:{token_id}"
