"""Lua scripts that run inside Redis, each one atomic step on Redis' own clock.

The server loads them, machines only call them.

Keys and arguments stand above each script. `cjson` values are as written by `grading/broker/leases.py`.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

from redis import Redis
from redis.exceptions import NoScriptError

from grading.broker.signing import MACHINE

log = logging.getLogger(__name__)
MISSING_S = 8.0
"""How long who may not load a script waits for the server, which loads those that are missing every 5 s."""
AGAIN_S = 0.2


class Script:
    """A script by its digest."""

    def __init__(self, client: Redis, text: str) -> None:
        self._redis = client
        self._text = text
        self._digest = digest(text)
        user = client.connection_pool.connection_kwargs.get("username")
        self._only_calls = str(user or "").startswith(MACHINE)

    def __call__(self, keys: Sequence[str] = (), args: Sequence[Any] = ()) -> Any:
        """Run it; one that Redis does not know is loaded. Raises redis errors.

        A machine may not load scripts: it waits for the server, as Redis forgets them when it starts again.
        """
        until = time.monotonic() + MISSING_S
        while True:
            try:
                return self._redis.evalsha(self._digest, len(keys), *keys, *args)
            except NoScriptError:
                if not self._load() and time.monotonic() > until:
                    raise

    def _load(self) -> bool:
        if self._only_calls:
            log.debug("NOSCRIPT: a Lua script is not loaded in redis yet, waiting for the server to load it")
            threading.Event().wait(AGAIN_S)
            return False
        self._redis.script_load(self._text)
        return True


def digest(text: str) -> str:
    """By which Redis knows a script."""
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def load(client: Redis, texts: Sequence[str]) -> int:
    """Load those that Redis does not know; how many it were. Raises redis errors."""
    known = client.script_exists(*(digest(text) for text in texts))
    missing = [text for text, there in zip(texts, known, strict=True) if not there]
    for text in missing:
        client.script_load(text)
    return len(missing)


# KEYS: current run of (round, stage), the run's mark of the withdrawn, drained machines, then for each
#       machine, the one that asks first: its leases, heartbeats, deliveries of the run, places of the round
#       (stage -> machine), mark that the run is over, own queue, and for each machine its mark of a
#       run that it has just handed on to that one: for a second these count as one more run there
# ARGV: run, lease as JSON, most deliveries, seconds to keep, 1 if the run may be handed on, seconds without a
#       heartbeat after which a machine is dead, machines to avoid as a JSON list, 1 if the run will be alone
#       on its machine: then where least is to wait for; then the names of the machines
# Nothing is written but keys of the machine that asks. What others wrote may be anything, so that one which
# cannot be read is left out. A run leaves a machine that has another stage of its round only for one with a
# free slot.
CLAIM = """
local lease = cjson.decode(ARGV[2])
local now = tonumber(redis.call('TIME')[1])
local names, first = {}, 9
for i = first, #ARGV do names[#names + 1] = ARGV[i] end
local me, each = names[1], 6 + #names

local function key(machine, which) return KEYS[3 + (machine - 1) * each + which] end
local LEASES, HEARTBEATS, DELIVERIES, PLACES, OVER, QUEUE, HANDED = 1, 2, 3, 4, 5, 6, 6

local function coming(machine)
  local count = redis.call('LLEN', key(machine, QUEUE))
  for by = 1, #names do count = count + redis.call('EXISTS', key(by, HANDED + machine)) end
  return count
end
local function slots(heartbeat)
  return (heartbeat['limit'] or 0) > 0 and heartbeat['limit'] or heartbeat['slots']
end
local function load_of(machine, heartbeat)
  return (redis.call('HLEN', key(machine, LEASES)) + coming(machine)) / slots(heartbeat)
end
local function able(heartbeat)
  local place = heartbeat['stages'][lease['stage']]
  local circuit = place and (heartbeat['circuits'] or {})[place['engine']]
  local open = not circuit or circuit['state'] == 'closed'
  if not open and circuit['stages'] then
    -- only the model of some stages is missing
    open = true
    for _, stage in ipairs(circuit['stages']) do open = open and stage ~= lease['stage'] end
  end
  return place and open and (heartbeat['reserved'] or '') == '' and not heartbeat['drained']
end

local function elsewhere()
  local others, avoided, drained = {}, {}, {}
  for machine = 1, #names do
    local places = redis.call('HGETALL', key(machine, PLACES))
    for i = 1, #places, 2 do
      if places[i] ~= lease['stage'] then others[places[i + 1]] = true end
    end
  end
  for _, name in ipairs(cjson.decode(ARGV[7])) do avoided[name] = true end
  for _, name in ipairs(redis.call('HKEYS', KEYS[3])) do drained[name] = true end
  local must = avoided[me] or drained[me]
  local solitary = ARGV[8] == '1' and not must and not others[me]
  if not must and not others[me] and not solitary then return nil end
  local best, least, mine
  local function consider(machine, row)
    local name, heartbeat = names[machine], cjson.decode(row)
    if machine == 1 then mine = load_of(machine, heartbeat) end
    local alive = math.abs(now - heartbeat['at']) <= tonumber(ARGV[6])
    local fit = alive and able(heartbeat) and name ~= me and not drained[name]
    if fit and not avoided[name] and (must or not others[name]) then
      local load = load_of(machine, heartbeat)
      local room = must or solitary or load + 1 / slots(heartbeat) <= 1
      if heartbeat['role'] ~= 'primary' then load = load + 0.001 end
      if others[name] then load = load + 1000 end
      if room and (not least or load < least) then best, least = machine, load end
    end
  end
  for machine = 1, #names do
    for _, row in ipairs(redis.call('HVALS', key(machine, HEARTBEATS))) do pcall(consider, machine, row) end
  end
  if solitary and least and least >= (mine or 0) then return nil end
  return best
end

local current = redis.call('GET', KEYS[1])
if current and current ~= ARGV[1] or redis.call('EXISTS', KEYS[2]) == 1 then return 'superseded' end
local held = redis.call('HGET', key(1, LEASES), ARGV[1])
if held then
  -- the same question once more, as its answer was lost on the way: it is granted still
  return cjson.decode(held)['claim'] == lease['claim'] and 'granted' or 'superseded'
end
local count = 0
for machine = 1, #names do
  local theirs = machine > 1 and redis.call('HEXISTS', key(machine, LEASES), ARGV[1]) == 1
  if theirs or redis.call('EXISTS', key(machine, OVER)) == 1 then return 'superseded' end
  if machine > 1 then count = count + (tonumber(redis.call('GET', key(machine, DELIVERIES)) or 0) or 0) end
end
local better = ARGV[5] == '1' and elsewhere()
redis.call('HSET', key(1, PLACES), lease['stage'], better and names[better] or me)
redis.call('EXPIRE', key(1, PLACES), ARGV[4])
if better then
  redis.call('SET', key(1, HANDED + better), 1, 'PX', 1000)
  return 'elsewhere ' .. names[better]
end
count = count + redis.call('INCR', key(1, DELIVERIES))
redis.call('EXPIRE', key(1, DELIVERIES), ARGV[4])
if count > tonumber(ARGV[3]) then return 'exhausted' end
lease['since'] = now
lease['moved'] = now
redis.call('HSET', key(1, LEASES), ARGV[1], cjson.encode(lease))
return 'granted'
"""

# KEYS: the machine's leases, then for each run that is told the current run of its (round, stage) and the
#       mark of one that was withdrawn or taken away
# ARGV: for each run its id and its lease as JSON. Answers 1 or 0 for each.
# A lease that was taken away stays away, also when another process has the run by now. One that Redis forgot
# together with everything else is told again: then nothing is known of the round and stage, either. Nothing
# is written where nothing changed.
PROGRESS = """
local now = tonumber(redis.call('TIME')[1])

local function tell(run, told, current, withdrawn)
  local held = redis.call('HGET', KEYS[1], run)
  local lease, moved
  if held then
    lease = cjson.decode(held)
    if lease['process'] ~= told['process'] then return 0 end
  elseif redis.call('EXISTS', current, withdrawn) == 0 then
    lease = told
    lease['since'] = now
    moved = true
  else
    return 0
  end
  if lease['phase'] ~= told['phase'] or lease['tokens'] ~= told['tokens'] or not lease['moved'] then
    lease['moved'] = now
    moved = true
  end
  if not moved and lease['prompt_tokens'] == told['prompt_tokens'] and lease['draft'] == told['draft'] then
    return 1
  end
  if lease['phase'] == 'waiting' and told['phase'] ~= 'waiting' then lease['since'] = now end
  lease['phase'] = told['phase']
  lease['tokens'] = told['tokens']
  lease['prompt_tokens'] = told['prompt_tokens']
  lease['draft'] = told['draft']
  redis.call('HSET', KEYS[1], run, cjson.encode(lease))
  return 1
end

local answers = {}
for i = 2, #KEYS, 2 do
  answers[i / 2] = tell(ARGV[i - 1], cjson.decode(ARGV[i]), KEYS[i], KEYS[i + 1])
end
return answers
"""

# Who ends a lease may have lost it meanwhile, and another process may have the run: then it stays. What a
# machine wrote may be anything: a lease that cannot be read is nobody's, and ends.
_END_LEASE = """
local function end_lease(run, process)
  local held = redis.call('HGET', KEYS[1], run)
  if not held then return 'none' end
  local read, lease = pcall(cjson.decode, held)
  if read and type(lease) == 'table' and lease['process'] ~= process then return 'theirs' end
  redis.call('HDEL', KEYS[1], run)
  return 'ended'
end
"""

# KEYS: the machine's leases; ARGV: process, run
GIVE_BACK = (
    _END_LEASE
    + """
return end_lease(ARGV[2], ARGV[1])
"""
)

# KEYS: the machine's leases, the mark of a run that was withdrawn or taken away
# ARGV: process, run, seconds to keep. The machine cannot tell of the run again, also where nothing else of it
# is known.
TAKE_AWAY = (
    _END_LEASE
    + """
if end_lease(ARGV[2], ARGV[1]) == 'theirs' then return 0 end
redis.call('SET', KEYS[2], 1, 'EX', ARGV[3])
return 1
"""
)

# KEYS: the machine's leases and heartbeats, then deliveries of each run by this machine, then leases of the
# others ARGV: process, 1 if it is going, seconds to keep, then each run. Answers 1 for each that is in
# nobody's hands now, 0 for those that another process has.
UNCLAIM = (
    _END_LEASE
    + """
if ARGV[2] == '1' then redis.call('HDEL', KEYS[2], ARGV[1]) end
local answers = {}
for i = 4, #ARGV do
  local ending = end_lease(ARGV[i], ARGV[1])
  if ending == 'ended' then
    redis.call('DECR', KEYS[i - 1])
    redis.call('EXPIRE', KEYS[i - 1], ARGV[3])
  end
  local theirs = ending == 'theirs'
  for other = #ARGV, #KEYS do theirs = theirs or redis.call('HEXISTS', KEYS[other], ARGV[i]) == 1 end
  answers[i - 3] = theirs and 0 or 1
end
return answers
"""
)

# KEYS: the machine's leases, its mark that the run is over; ARGV: run, seconds to keep, process
# A run that is over is not begun again when its message comes once more.
FINISH = (
    _END_LEASE
    + """
end_lease(ARGV[1], ARGV[3])
redis.call('SET', KEYS[2], 1, 'EX', ARGV[2])
return 1
"""
)

# KEYS: the machine's heartbeats, drained machines; ARGV: process, heartbeat as JSON, machine. Answers 1 when
# it is drained.
HEARTBEAT = """
local heartbeat = cjson.decode(ARGV[2])
heartbeat['at'] = tonumber(redis.call('TIME')[1])
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(heartbeat))
return redis.call('HEXISTS', KEYS[2], ARGV[3])
"""

# KEYS: queues. Answers the id of each message that waits there: whole messages are as large as submissions.
# The envelope's body comes first, in base64: it holds no quotes, so the first "id" is that of the headers.
WAITING = """
local found = {}
for _, queue in ipairs(KEYS) do
  for _, row in ipairs(redis.call('LRANGE', queue, 0, -1)) do
    found[#found + 1] = string.match(row, '"id":%s*"([%w-]+)"')
  end
end
return found
"""

# KEYS: backlog, then the heartbeats of each machine
# ARGV: each queue, and 1 where its messages may be read: a machine counts those of
# stages that are not its own, but may not read them. Answers the time, the heartbeats, the backlog, and for
# each queue its length and when its oldest message was sent, as text. Messages are as large as submissions:
# they stay here. The header is looked for as plain text, body and all: base64 holds no quotes.
LOOK = """
local function sent(queue)
  local row = redis.call('LINDEX', queue, -1)
  local at = row and string.find(row, '"grader_sent"', 1, true)
  return at and string.match(row, '^"grader_sent":%s*([%d.]+)', at) or ''
end

local time = redis.call('TIME')
local heartbeats = {}
for i = 2, #KEYS do heartbeats[i - 1] = redis.call('HVALS', KEYS[i]) end
local found = {time[1], time[2], heartbeats, redis.call('HGETALL', KEYS[1])}
for i = 1, #ARGV, 2 do
  found[#found + 1] = {redis.call('LLEN', ARGV[i]), ARGV[i + 1] == '1' and sent(ARGV[i]) or ''}
end
return found
"""

# KEYS: backlog; ARGV: seconds to keep, then names and numbers by turns. What was told before is gone.
TELL_BACKLOG = """
local time = redis.call('TIME')
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'at', time[1] .. '.' .. string.format('%06d', time[2]), unpack(ARGV, 2))
redis.call('EXPIRE', KEYS[1], ARGV[1])
return 1
"""

# KEYS: a queue of requests; ARGV: the id of a request. Takes its message off the queue; 1 if it was there.
WITHDRAW = """
for _, row in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  if string.find(row, ARGV[1], 1, true) then return redis.call('LREM', KEYS[1], 1, row) end
end
return 0
"""
