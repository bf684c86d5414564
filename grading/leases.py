"""What lives in Redis beside the queues: claims, leases and the machines' beats.

Redis' own clock is the only one used here; machines' clocks are not trusted. All of it may be lost at any
time: SQL decides what counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, cast

from redis import Redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from grading.queue import own_queue

LEASES = "grader:leases"
MACHINES = "grader:machines"
BEAT_S = 3.0
DEAD_AFTER_S = 10.0
MAX_DELIVERIES = 3
KEEP_S = 86_400

# KEYS: leases, current run of (round, stage), deliveries of the run, places of the round (stage -> machine),
#       machines
# ARGV: run, lease as JSON, most deliveries, seconds to keep, role of the machine, 1 if the run may be handed
#       on, seconds without a beat after which a machine is dead, prefix of the machines' own queues, prefix
#       of the marks of machines that a run is on its way to: for a second they are not idle
_CLAIM = """
local lease = cjson.decode(ARGV[2])
local now = tonumber(redis.call('TIME')[1])

local function elsewhere()
  local others, both = {}, false
  local places = redis.call('HGETALL', KEYS[4])
  for i = 1, #places, 2 do
    if places[i] ~= lease['stage'] then others[places[i + 1]] = true end
  end
  both = others[lease['machine']]
  if not both and ARGV[5] == 'primary' then return nil end
  local busy = {}
  for _, row in ipairs(redis.call('HVALS', KEYS[1])) do
    local name = cjson.decode(row)['machine']
    busy[name] = (busy[name] or 0) + 1
  end
  local best, least
  for _, row in ipairs(redis.call('HVALS', KEYS[5])) do
    local beat = cjson.decode(row)
    local name = beat['machine']
    local alive = now - beat['at'] <= tonumber(ARGV[7])
    if alive and beat['stages'][lease['stage']] and name ~= lease['machine'] and not others[name] then
      local load = ((busy[name] or 0) + redis.call('LLEN', ARGV[8] .. name)) / beat['slots']
      local idle = beat['role'] == 'primary' and load == 0 and redis.call('EXISTS', ARGV[9] .. name) == 0
      if beat['role'] ~= 'primary' then load = load + 0.001 end
      if (both or idle) and (not least or load < least) then best, least = name, load end
    end
  end
  return best
end

local current = redis.call('GET', KEYS[2])
if current and current ~= ARGV[1] then return 'superseded' end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return 'superseded' end
local better = ARGV[6] == '1' and elsewhere()
redis.call('HSET', KEYS[4], lease['stage'], better or lease['machine'])
redis.call('EXPIRE', KEYS[4], ARGV[4])
if better then
  redis.call('SET', ARGV[9] .. better, 1, 'PX', 1000)
  return 'elsewhere ' .. better
end
local count = redis.call('INCR', KEYS[3])
redis.call('EXPIRE', KEYS[3], ARGV[4])
if count > tonumber(ARGV[3]) then return 'exhausted' end
lease['since'] = now
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(lease))
return 'granted'
"""
# KEYS: leases; ARGV: run, phase, tokens. Only a lease that is held is renewed.
_PROGRESS = """
local held = redis.call('HGET', KEYS[1], ARGV[1])
if not held then return 0 end
local lease = cjson.decode(held)
lease['phase'] = ARGV[2]
lease['tokens'] = tonumber(ARGV[3])
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(lease))
return 1
"""
# KEYS: machines; ARGV: process, beat as JSON
_BEAT = """
local beat = cjson.decode(ARGV[2])
beat['at'] = tonumber(redis.call('TIME')[1])
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(beat))
return 1
"""

Answer = Literal["granted", "superseded", "exhausted", "elsewhere"]


@dataclass(frozen=True)
class Claim:
    """The answer to a machine that asks for a run; `machine` is where the run belongs if elsewhere."""

    answer: Answer
    machine: str = ""


@dataclass(frozen=True)
class Lease:
    """A run in the hands of a machine's process. `since_s` is its age in seconds."""

    run_id: str
    machine: str
    process: str
    stage: str
    phase: str = "starting"
    tokens: int = 0
    since_s: float = 0.0


@dataclass(frozen=True)
class Beat:
    """What a worker process says of itself every 3 s. `age_s` by Redis' clock."""

    process: str
    machine: str
    slots: int
    busy: int
    stages: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    role: str = "primary"
    age_s: float = 0.0

    @property
    def alive(self) -> bool:
        """Whether it beat within the last 10 s."""
        return self.age_s <= DEAD_AFTER_S


def connect(url: str) -> Redis:
    """A client that gives up after seconds, not minutes. Connects at the first use."""
    return Redis.from_url(
        url,
        socket_connect_timeout=5,
        socket_timeout=5,
        retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), 3),
        retry_on_error=[RedisConnectionError, RedisTimeoutError],
        decode_responses=True,
    )


class Leases:
    """Claims, leases and beats over one Redis client. Methods raise redis errors."""

    def __init__(self, client: Redis) -> None:
        self.redis = client
        self._claim = client.register_script(_CLAIM)
        self._progress = client.register_script(_PROGRESS)
        self._beat = client.register_script(_BEAT)

    def make_current(self, runs: Mapping[tuple[str, str], str]) -> None:
        """Say which run of each (round, stage) counts from now on."""
        with self.redis.pipeline(transaction=False) as pipe:
            for (round_id, stage), run_id in runs.items():
                pipe.set(_current(round_id, stage), run_id, ex=KEEP_S)
            pipe.execute()

    def claim(self, lease: Lease, round_id: str, *, role: str = "primary", hand_on: bool = False) -> Claim:
        """Ask for a run before working on it.

        With `hand_on` the answer may be that it belongs elsewhere: this machine has another stage of the
        round while a live one could do this, or it is a spare and a primary machine is idle.
        """
        run_id, stage = lease.run_id, lease.stage
        answer = self._claim(
            keys=[
                LEASES,
                _current(round_id, stage),
                f"grader:deliveries:{run_id}",
                f"grader:places:{round_id}",
                MACHINES,
            ],
            args=[
                run_id,
                json.dumps(asdict(lease)),
                MAX_DELIVERIES,
                KEEP_S,
                role,
                int(hand_on),
                DEAD_AFTER_S,
                own_queue(""),
                "grader:handed:",
            ],
        )
        word, _, machine = cast(str, answer).partition(" ")
        return Claim(cast(Answer, word), machine)

    def progress(self, run_id: str, phase: str, tokens: int) -> bool:
        """Tell how far a run is; False when its lease was taken away."""
        return bool(self._progress(keys=[LEASES], args=[run_id, phase, tokens]))

    def give_back(self, run_id: str) -> None:
        """End a lease."""
        self.redis.hdel(LEASES, run_id)

    def beat(self, beat: Beat) -> None:
        """Say that a worker process is alive."""
        content = {**asdict(beat), "stages": {k: dict(v) for k, v in beat.stages.items()}}
        self._beat(keys=[MACHINES], args=[beat.process, json.dumps(content)])

    def leave(self, process: str) -> None:
        """A worker process ends, or is found dead."""
        self.redis.hdel(MACHINES, process)

    def held(self) -> list[Lease]:
        """All leases."""
        moment = self.time()
        rows = cast("dict[str, str]", self.redis.hgetall(LEASES))
        return [_lease(run_id, json.loads(row), moment) for run_id, row in rows.items()]

    def held_of(self, run_ids: Sequence[str]) -> dict[str, Lease]:
        """The leases of these runs, where there are any."""
        if not run_ids:
            return {}
        moment = self.time()
        rows = cast("list[str | None]", self.redis.hmget(LEASES, list(run_ids)))
        return {r: _lease(r, json.loads(row), moment) for r, row in zip(run_ids, rows, strict=True) if row}

    def beats(self) -> list[Beat]:
        """The last beat of every worker process that did not end in order."""
        return self.load([])[1]

    def load(self, queues: Sequence[str]) -> tuple[dict[str, int], list[Beat]]:
        """Messages that wait in each queue, and the last beats, in one round trip."""
        with self.redis.pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.hgetall(MACHINES)
            for queue in queues:
                pipe.llen(queue)
            (seconds, micro), rows, *lengths = pipe.execute()
        beats = [_beat(json.loads(row), seconds + micro / 1e6) for row in rows.values()]
        return dict(zip(queues, lengths, strict=True)), beats

    def time(self) -> float:
        """Redis' clock in seconds."""
        seconds, micro = self.redis.time()
        return seconds + micro / 1e6

    def uptime_s(self) -> float:
        """How long Redis has been up."""
        return float(self.redis.info("server")["uptime_in_seconds"])

    def lengths(self, queues: Sequence[str]) -> dict[str, int]:
        """Messages that wait in each queue."""
        with self.redis.pipeline(transaction=False) as pipe:
            for queue in queues:
                pipe.llen(queue)
            return dict(zip(queues, pipe.execute(), strict=True))

    def waiting(self, queues: Sequence[str]) -> set[str]:
        """Task ids that wait in the queues."""
        rows = [row for queue in queues for row in cast("list[str]", self.redis.lrange(queue, 0, -1))]
        return {_task_id(json.loads(row)) for row in rows}

    def handed_out(self) -> set[str]:
        """Task ids that were handed to some worker and not acknowledged; Redis does not say to which."""
        return {_task_id(json.loads(row)[0]) for row in cast("list[str]", self.redis.hvals("unacked"))}


def _task_id(message: dict[str, Any]) -> str:
    return str(message.get("headers", {}).get("id", ""))


def _current(round_id: str, stage: str) -> str:
    return f"grader:current:{round_id}:{stage}"


def _beat(row: dict[str, Any], moment: float) -> Beat:
    age = max(0.0, moment - row.pop("at", 0.0))
    return Beat(**_known(Beat, {**row, "age_s": age}))


def _lease(run_id: str, row: dict[str, Any], moment: float) -> Lease:
    since = row.pop("since", moment)
    row.pop("since_s", None)
    return Lease(**_known(Lease, {**row, "run_id": run_id, "since_s": max(0.0, moment - since)}))


def _known(kind: type[Lease] | type[Beat], row: Mapping[str, Any]) -> dict[str, Any]:
    """Only the fields of this version: while versions change, machines may already say more."""
    names = {one.name for one in fields(kind)}
    return {key: value for key, value in row.items() if key in names}
