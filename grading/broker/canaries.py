"""Canary tasks that show that workers take work, with the heartbeats of the server processes.

A worker whose consumer hangs goes on sending heartbeats; only a task that comes back shows that it takes
work. Redis' clock is the only one used. All of it may be lost at any time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from redis import Redis

from grading.broker.lua_scripts import Script
from grading.execution.throughput import Rate, together

CANARIES = "grader:canaries"
PARTS = "grader:parts"
ANSWERS = "grader:answers:"
"""And a queue: when its worker last answered, in ms. What was sent is in CANARIES, the server's own."""
EXAMINATIONS = "grader:examinations:"
"""And a machine: where it leaves its answers; see `examination_key`."""
EVERY_S = 30.0
OVERDUE_S = 60.0
LOST_AFTER_S = 40.0
"""An unanswered canary that waits in no queue any more is sent once more after so long."""
PART_ALIVE_S = 60.0
FORGET_PARTS_S = 3600.0
KEEP_S = 86_400
MOST_DIGITS = 20
"""Of a time in ms; machines may write anything."""

# KEYS: canaries, the queue, when it last answered
# ARGV: queue, ms between two, ms after which one that is nowhere is lost
# Answers 1 when one is to be sent now. Never more than one waits in a queue, however long nobody reads it;
# while it does, it is as if it were sent again.
_DUE = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local row = redis.call('HGET', KEYS[1], ARGV[1])
local canary = row and cjson.decode(row) or {sent = 0, since = 0}
local waits = (tonumber(redis.call('GET', KEYS[3]) or 0) or 0) < canary['sent']
if now - canary['sent'] < tonumber(waits and ARGV[3] or ARGV[2]) then return 0 end
if not waits then canary['since'] = now end
canary['sent'] = now
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(canary))
if waits and redis.call('LLEN', KEYS[2]) > 0 then return 0 end
return 1
"""
# KEYS: when the queue last answered; ARGV: seconds to keep
ANSWER = """
local t = redis.call('TIME')
redis.call('SET', KEYS[1], string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000)), 'EX', ARGV[1])
return 1
"""
# KEYS: parts; ARGV: process, heartbeat as JSON, seconds after which a silent one is forgotten
_HEARTBEAT = """
local now = tonumber(redis.call('TIME')[1])
local rows = redis.call('HGETALL', KEYS[1])
for i = 1, #rows, 2 do
  if now - cjson.decode(rows[i + 1])['at'] > tonumber(ARGV[3]) then redis.call('HDEL', KEYS[1], rows[i]) end
end
local heartbeat = cjson.decode(ARGV[2])
heartbeat['at'] = now
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(heartbeat))
return 1
"""


def examination_key(machine: str, question: str) -> str:
    """Where a machine leaves its answer to a question that it was sent."""
    return f"{EXAMINATIONS}{machine}:{question}"


@dataclass(frozen=True)
class PartHeartbeat:
    """The last heartbeat of a server process; `age_s` by Redis' clock."""

    part: str
    process: str
    software: str
    age_s: float
    rate: Rate | None = None
    """Of the checks: how fast they run work."""
    folder: str = ""
    """Of its code."""
    secret: str = ""
    """Of a web app: the fingerprint of its secret key."""

    @property
    def host(self) -> str:
        """The computer it runs on."""
        return self.process.rpartition(":")[0]

    @property
    def alive(self) -> bool:
        """Whether it spoke within the last minute."""
        return self.age_s <= PART_ALIVE_S


def rate_of_checks(parts: Sequence[PartHeartbeat]) -> Rate | None:
    """How fast all live processes of the checks run work; None as long as none has."""
    return together(one.rate for one in parts if one.rate is not None and one.alive)


@dataclass(frozen=True)
class Waiting:
    """A canary: seconds it waits for an answer, 0 when it has one, and seconds since it was last sent."""

    waits_s: float
    sent_s: float


class Canaries:
    """Canaries and parts over one Redis client. Methods raise redis errors."""

    def __init__(self, client: Redis) -> None:
        self.redis = client
        self._due = Script(client, _DUE)
        self._answer = Script(client, ANSWER)
        self._heartbeat = Script(client, _HEARTBEAT)

    def due(self, queue: str) -> bool:
        """Whether a canary is to be sent to this queue now; who gets a yes sends it."""
        in_ms = (int(EVERY_S * 1000), int(LOST_AFTER_S * 1000))
        return bool(self._due(keys=[CANARIES, queue, ANSWERS + queue], args=[queue, *in_ms]))

    def answer(self, queue: str) -> None:
        """A worker took the canary of its queue."""
        self._answer(keys=[ANSWERS + queue], args=[KEEP_S])

    def waiting(self, queues: Sequence[str]) -> dict[str, Waiting]:
        """Those of these queues that were ever sent a canary."""
        if not queues:
            return {}
        with self.redis.pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.hmget(CANARIES, list(queues))
            pipe.mget([ANSWERS + name for name in queues])
            (seconds, micro), rows, answers = pipe.execute()
        moment_ms = seconds * 1000 + micro / 1000
        found = zip(queues, rows, answers, strict=True)
        return {name: _waiting(json.loads(row), answer, moment_ms) for name, row, answer in found if row}

    def heartbeat(
        self,
        part: str,
        process: str,
        software: str,
        rate: Rate | None = None,
        folder: str = "",
        secret: str = "",
    ) -> None:
        """Record the heartbeat of a server process; the sandbox worker's says how fast it is."""
        speed = {} if rate is None else {"slots": rate.slots, "run_s": rate.seconds}
        content = json.dumps(
            {"part": part, "software": software, "folder": folder, "secret": secret, **speed}
        )
        self._heartbeat(keys=[PARTS], args=[process, content, int(FORGET_PARTS_S)])

    def leave(self, process: str) -> None:
        """A server process ends."""
        self.redis.hdel(PARTS, process)

    def parts(self) -> list[PartHeartbeat]:
        """The last heartbeat of every server process in the last hour."""
        with self.redis.pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.hgetall(PARTS)
            (seconds, _), rows = pipe.execute()
        found = {str(p): cast("Mapping[str, Any]", json.loads(row)) for p, row in rows.items()}
        return [
            PartHeartbeat(
                str(r["part"]),
                process,
                str(r["software"]),
                max(0.0, seconds - float(r["at"])),
                Rate(int(r["slots"]), float(r["run_s"])) if "slots" in r else None,
                str(r.get("folder", "")),
                str(r.get("secret", "")),
            )
            for process, r in found.items()
        ]


def _waiting(canary: Mapping[str, Any], answer: str | None, moment_ms: float) -> Waiting:
    def age_s(stamp: float) -> float:
        return max(0.0, (moment_ms - stamp) / 1000)

    answered = int(answer) if answer and answer.isdecimal() and len(answer) < MOST_DIGITS else 0
    waits = answered < canary["sent"]
    return Waiting(age_s(canary["since"]) if waits else 0.0, age_s(canary["sent"]))
