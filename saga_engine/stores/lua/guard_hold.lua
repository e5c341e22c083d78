-- The resources that sagas hold: one family that writes, or any number of families that read; and who waits for that.
--
-- KEYS  of one resource: holders, line (waiting tickets by rank and arrival), alive (the same by the ms in which they
--       die), and the list of all held resources of the partition; for 'list' those of any partitions
-- ARGV  'hold', ttl_ms, family, saga, started_ms, mode ('r' or 'w'), ticket, rank (0 before 1), skips ('1'), note, taker
--       'unhold', family, saga, since_ms, taker (empty: whichever call took it)
--       'leave', ticket
--       'list', most
-- Reply hold: {1 or 2 (2: the saga did not hold it before), since_ms}; or {0, family, saga, mode, since_ms, started_ms,
--       note, ...} of the families in the way, the oldest first, none if it only waits for others before it
--       unhold: 1, or 0 if that is not held, or by more calls than that taker; leave: 0
--       list: for each resource {name, {family, saga, mode, since_ms, started_ms, note, ...}, {ticket, since_ms, ...}}
--
-- A holder is a field '<family> <saga>' with the value of mode, since_ms, started_ms (when the family began), taker and
-- note. The saga is the one of the family whose end releases it. The taker is a hash of the ticket that took it, and
-- "-" as soon as another one has passed because of it.
--
-- LAWS
-- 1. Two families never hold a resource at once, unless both only read.
-- 2. What one saga of a family holds in this mode or a stronger one passes every call of the family at once.
-- 3. A hold has no TTL: only 'unhold' of the same saga and the same since_ms ends it, so a late repeat ends no later one.
-- 4. Among those that wait, the lower rank goes first, then who came first. A ticket lives until ttl_ms after it was
--    last named; a dead one has no place. Who 'skips' (its family holds something else) does not stand behind others:
--    nobody who holds something waits for anyone but a holder, so all deadlocks are between holders.
-- 5. A repeat after a lost reply changes nothing but the time of death; it replies 1 instead of 2.
-- 6. Who gives back what its own ticket took gives back nothing that another call relies on.
-- 7. A resource is in the list exactly while somebody holds it. Line and alive expire with the last ticket.

local call = redis.call
local RANK = 2 ^ 43 -- more than any ms of this century
local AT_ONCE = 64
local MOST_SHOWN = 8

local verb = ARGV[1]

local function holders_in(key)
  local found, flat = {}, call('HGETALL', key)
  for i = 1, #flat, 2 do
    local family, saga = string.match(flat[i], '^(%S+) (%S+)$')
    local mode, since, started, taker, note = string.match(flat[i + 1], '^(%a) (%d+) (%d+) ([%x-]+) (.*)$')
    if mode then -- (a field that is none, from a foreign writer, holds nothing)
      found[#found + 1] = {
        family = family, saga = saga, mode = mode, since = tonumber(since), started = tonumber(started), taker = taker,
        note = note
      }
    end
  end
  table.sort(found, function(one, other)
    if one.started ~= other.started then
      return one.started < other.started
    end
    return one.family .. ' ' .. one.saga < other.family .. ' ' .. other.saga
  end)
  return found
end

local function told(reply, holder)
  for _, name in ipairs({'family', 'saga', 'mode', 'since', 'started', 'note'}) do
    reply[#reply + 1] = holder[name]
  end
end

local function shown(tag, name)
  local held, waiting = {}, {}
  for at, holder in ipairs(holders_in(tag .. 'held:' .. name)) do
    if at <= 4 * MOST_SHOWN then
      told(held, holder)
    end
  end
  local line = call('ZRANGE', tag .. 'line:' .. name, 0, 4 * MOST_SHOWN - 1, 'WITHSCORES')
  for i = 1, #line, 2 do
    waiting[#waiting + 1], waiting[#waiting + 2] = line[i], tonumber(line[i + 1]) % RANK
  end
  return {name, held, waiting}
end

if verb == 'list' then
  local reply = {}
  for _, key in ipairs(KEYS) do
    local tag = string.sub(key, 1, -6)
    for _, name in ipairs(call('ZRANGE', key, 0, ARGV[2] - 1)) do
      reply[#reply + 1] = shown(tag, name)
    end
  end
  return reply
end

local held, line, alive, list = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local name = string.match(held, '}:held:(.*)$')

if verb == 'leave' then
  call('ZREM', line, ARGV[2])
  call('ZREM', alive, ARGV[2])
  return 0
end

if verb == 'unhold' then
  local field = ARGV[2] .. ' ' .. ARGV[3]
  local found = call('HGET', held, field)
  local since, taker = string.match(found or '', '^%a (%d+) %d+ ([%x-]+) ')
  if not since or since ~= ARGV[4] or (ARGV[5] ~= '' and taker ~= ARGV[5]) then
    return 0
  end
  call('HDEL', held, field)
  if call('EXISTS', held) == 0 then
    call('ZREM', list, name)
  end
  return 1
end

local now = now_ms()
local ttl_ms, family, saga, started, mode = tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local ticket, rank, skips, note = ARGV[7], tonumber(ARGV[8]), ARGV[9] == '1', ARGV[10]

local function drop(dead)
  call('ZREM', line, dead)
  call('ZREM', alive, dead)
end

-- The first living ticket and its score; none: nobody waits.
local function front()
  while true do
    local first = call('ZRANGE', line, 0, 0, 'WITHSCORES')
    if not first[1] then
      return nil
    end
    local until_ms = tonumber(call('ZSCORE', alive, first[1]) or 0)
    if until_ms > now then
      if until_ms > now + ttl_ms then -- written by a clock that has stepped back since
        call('ZADD', alive, now + ttl_ms, first[1])
      end
      return first[1], tonumber(first[2])
    end
    drop(first[1])
  end
end

local function join()
  for _, dead in ipairs(call('ZRANGEBYSCORE', alive, '-inf', now, 'LIMIT', 0, AT_ONCE)) do
    drop(dead)
  end
  if not call('ZSCORE', line, ticket) then
    local base = rank * RANK
    local last = call('ZREVRANGEBYSCORE', line, base + RANK - 1, base, 'WITHSCORES', 'LIMIT', 0, 1)
    call('ZADD', line, math.max(base + now, (tonumber(last[2]) or 0) + 1), ticket)
  end
  call('ZADD', alive, now + ttl_ms, ticket)
  local last = call('ZREVRANGE', alive, 0, 0, 'WITHSCORES')
  local at_ms = string.format('%.0f', tonumber(last[2]))
  for _, key in ipairs({line, alive}) do
    call('PEXPIREAT', key, at_ms)
  end
end

-- `mine`: what this saga itself holds already.
local function grant(mine, waits)
  local since, taker = mine and mine.since or now, ARGV[11]
  local more, shared = mine and mode == 'w' and mine.mode == 'r', mine and mine.taker ~= taker
  if not mine or more or (shared and mine.taker ~= '-') then
    local text = string.format('%s %.0f %s %s ', (more or not mine) and mode or mine.mode, since, started,
      shared and '-' or taker)
    call('HSET', held, family .. ' ' .. saga, text .. ((more or not mine) and note or mine.note))
    if not mine then
      call('ZADD', list, now, name)
    end
  end
  if waits then
    drop(ticket)
  end
  return {mine and 1 or 2, since}
end

local mine, any, enough, others = nil, false, false, {}
for _, holder in ipairs(holders_in(held)) do
  if holder.family == family then
    any = true
    enough = enough or mode == 'r' or holder.mode == 'w'
    if holder.saga == saga then
      mine = holder
    end
  elseif mode == 'w' or holder.mode == 'w' then
    others[#others + 1] = holder
  end
end
if enough then
  return grant(mine, true)
end
if #others == 0 then
  local first, score = front()
  if not first or first == ticket or any or skips or (rank == 0 and score >= RANK) then
    return grant(mine, first ~= nil)
  end
end
join()
local reply = {0}
for at, holder in ipairs(others) do
  if at <= MOST_SHOWN then
    told(reply, holder)
  end
end
return reply
