"""The scripts that run inside Redis: each is one indivisible step, on Redis' own clock.

Keys and arguments stand above each script. `cjson` values are as written by `grading/leases.py`.
"""

# KEYS: leases, current run of (round, stage), deliveries of the run, places of the round (stage -> machine),
#       machines, drained machines
# ARGV: run, lease as JSON, most deliveries, seconds to keep, role of the machine, 1 if the run may be handed
#       on, seconds without a beat after which a machine is dead, prefix of the machines' own queues, prefix
#       of the marks of machines that a run is on its way to: for a second they are not idle; machines to
#       avoid as a JSON list; 1 if the run will be alone on its machine: then where least is to wait for
CLAIM = """
local lease = cjson.decode(ARGV[2])
local now = tonumber(redis.call('TIME')[1])
local me = lease['machine']

local function elsewhere()
  local others, avoided = {}, {}
  local places = redis.call('HGETALL', KEYS[4])
  for i = 1, #places, 2 do
    if places[i] ~= lease['stage'] then others[places[i + 1]] = true end
  end
  for _, name in ipairs(cjson.decode(ARGV[10])) do avoided[name] = true end
  local drained = {}
  for _, name in ipairs(redis.call('HKEYS', KEYS[6])) do drained[name] = true end
  local must = avoided[me] or drained[me]
  local should = must or others[me]
  local solitary = ARGV[11] == '1' and not should
  if not should and not solitary and ARGV[5] == 'primary' then return nil end
  local busy = {}
  for _, row in ipairs(redis.call('HVALS', KEYS[1])) do
    local name = cjson.decode(row)['machine']
    busy[name] = (busy[name] or 0) + 1
  end
  local function load_of(beat)
    return ((busy[beat['machine']] or 0) + redis.call('LLEN', ARGV[8] .. beat['machine'])) / beat['slots']
  end
  local best, least, mine
  for _, row in ipairs(redis.call('HVALS', KEYS[5])) do
    local beat = cjson.decode(row)
    local name = beat['machine']
    local alive = now - beat['at'] <= tonumber(ARGV[7])
    local fit = alive and not beat['drained'] and beat['stages'][lease['stage']] and name ~= me
    if name == me then mine = load_of(beat) end
    if fit and not avoided[name] and not drained[name] and (must or not others[name]) then
      local load = load_of(beat)
      local idle = beat['role'] == 'primary' and load == 0 and redis.call('EXISTS', ARGV[9] .. name) == 0
      if beat['role'] ~= 'primary' then load = load + 0.001 end
      if others[name] then load = load + 1000 end
      if (should or solitary or idle) and (not least or load < least) then best, least = name, load end
    end
  end
  if solitary and least and least >= (mine or 0) then return nil end
  return best
end

local current = redis.call('GET', KEYS[2])
if current and current ~= ARGV[1] then return 'superseded' end
local held = redis.call('HGET', KEYS[1], ARGV[1])
if held then
  -- the same question once more, as its answer was lost on the way: it is granted still
  return cjson.decode(held)['claim'] == lease['claim'] and 'granted' or 'superseded'
end
local better = ARGV[6] == '1' and elsewhere()
redis.call('HSET', KEYS[4], lease['stage'], better or me)
redis.call('EXPIRE', KEYS[4], ARGV[4])
if better then
  redis.call('SET', ARGV[9] .. better, 1, 'PX', 1000)
  return 'elsewhere ' .. better
end
local count = redis.call('INCR', KEYS[3])
redis.call('EXPIRE', KEYS[3], ARGV[4])
if count > tonumber(ARGV[3]) then return 'exhausted' end
lease['since'] = now
lease['moved'] = now
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(lease))
return 'granted'
"""

# KEYS: leases, then for each run that is told the current run of its (round, stage) and the mark of one that
#       was withdrawn
# ARGV: seconds to keep, then for each run its id and its lease as JSON. Answers 1 or 0 for each.
# A lease that was taken away stays away, also when another process has the run by now. One that Redis forgot
# together with everything else is told again: then nothing is known of the round and stage, either. Of one
# that was withdrawn nothing is known on purpose. Nothing is written where nothing changed.
PROGRESS = """
local now = tonumber(redis.call('TIME')[1])

local function tell(run, told, current, withdrawn)
  local held = redis.call('HGET', KEYS[1], run)
  local lease, moved
  if held then
    lease = cjson.decode(held)
    if lease['process'] ~= told['process'] then return 0 end
  elseif redis.call('EXISTS', current, withdrawn) == 0 then
    redis.call('SET', current, run, 'EX', ARGV[1])
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
  answers[i / 2] = tell(ARGV[i], cjson.decode(ARGV[i + 1]), KEYS[i], KEYS[i + 1])
end
return answers
"""

# KEYS: leases, current run of (round, stage); ARGV: run, seconds to keep
# A run that is over is not begun again when its message comes once more.
FINISH = """
redis.call('HDEL', KEYS[1], ARGV[1])
local current = redis.call('GET', KEYS[2])
if current == ARGV[1] then redis.call('SET', KEYS[2], 'over:' .. ARGV[1], 'EX', ARGV[2]) end
return 1
"""

# KEYS: machines, drained machines; ARGV: process, beat as JSON, machine. Answers 1 when it is drained.
BEAT = """
local beat = cjson.decode(ARGV[2])
beat['at'] = tonumber(redis.call('TIME')[1])
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(beat))
return redis.call('HEXISTS', KEYS[2], ARGV[3])
"""

# KEYS: queues. Answers the id of each message that waits there: whole messages are as large as hand-ins. The
# envelope's body comes first, in base64: it holds no quotes, so the first "id" is that of the headers.
WAITING = """
local found = {}
for _, queue in ipairs(KEYS) do
  for _, row in ipairs(redis.call('LRANGE', queue, 0, -1)) do
    found[#found + 1] = string.match(row, '"id":%s*"([%w-]+)"')
  end
end
return found
"""
