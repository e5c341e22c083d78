-- The queue for a resource: one at a time, first come first served, and an expired ticket loses its place.
--
-- KEYS  queue (tickets by number of arrival), alive (tickets by the ms in which they die) and writes (who wrote what the
--       resource names: a field of each idempotency key with 'at_ms nonce', and '#' with the last at_ms)
-- ARGV  'take', ttl_ms, ticket...     join in this order, or be kept alive
--       'keep', ttl_ms, ticket...     be kept alive; one that is dead or gone joins no more
--       'give', ticket                leave; 'give', ticket, '1': its call has written nothing
--       'free', ticket, ttl_ms, silent_ms   drop the ticket of another process that is dead, unless it was kept alive,
--                                     with ttl_ms, in the last silent_ms
--       'writes'                      the last MOST_WRITES writes, or a few more
-- Reply the ticket whose turn it is, '' for an empty queue; writes: idempotency key and at_ms of each
--
-- LAWS
-- 1. The turn is that of the ticket that arrived first among those alive. A repeat in time never loses the place.
-- 2. A ticket lives until ttl_ms after it was last taken. A dead one has no place: a repeat joins at the end,
--    even if nobody has dropped it yet.
-- 3. Every call drops dead tickets at the front, so a queue never stands still; up to
--    DROP_AT_ONCE dead ones elsewhere go with each call. A ticket is dropped once, so a call costs the logarithm of the
--    queue's length for each ticket that it names.
-- 4. Both keys expire with the last ticket.
-- 5. A ticket that ends in its ttl_ms and a name is the first of those alive no longer than that: nobody waits for a
--    clock that has stepped back.
-- 6. A repeat after a lost reply changes nothing but the time of death.
-- 7. A ticket '<key>:<attempt>:<nonce>:<mark> <ttl_ms> <name>' of a call that writes is noted in writes when its turn
--    comes, so before its call. The mark 'b' begins a list, 'w' notes only in one that is there.
-- 8. at_ms only grows, whatever the clock does. A key keeps the at_ms of its first attempt: its before-image is from
--    then. Only the ticket that brought it there takes it out, and only if no other attempt had a turn since.
-- 9. A list that is not written to for KEPT_MS is forgotten.

local call = redis.call
local DROP_AT_ONCE = 64
local MOST_WRITES = 100
local TRIM = 25
local KEPT_MS = 30 * 86400000

local queue, alive, writes = KEYS[1], KEYS[2], KEYS[3]
local now = now_ms()

local function drop(ticket)
  call('ZREM', queue, ticket)
  call('ZREM', alive, ticket)
end

local function lives(ticket)
  local until_ms = call('ZSCORE', alive, ticket)
  return until_ms and tonumber(until_ms) > now
end

local function bound(ticket)
  local ttl_ms = string.match(ticket, ' (%d+) %S+$')
  if ttl_ms and call('ZSCORE', alive, ticket) - now > tonumber(ttl_ms) then
    call('ZADD', alive, now + ttl_ms, ticket)
  end
end

local function front()
  while true do
    local ticket = call('ZRANGE', queue, 0, 0)[1]
    if not ticket then
      return ''
    end
    if lives(ticket) then
      bound(ticket)
      return ticket
    end
    drop(ticket)
  end
end

local function join(ticket)
  local last = call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')
  call('ZADD', queue, (tonumber(last[2]) or 0) + 1, ticket)
end

local function expire_with_the_last()
  local last = call('ZREVRANGE', alive, 0, 0, 'WITHSCORES')
  if last[2] then
    local at_ms = string.format('%.0f', tonumber(last[2]))
    call('PEXPIREAT', queue, at_ms)
    call('PEXPIREAT', alive, at_ms)
  end
end

local function written()
  local found, flat = {}, call('HGETALL', writes)
  for i = 1, #flat, 2 do
    local at = flat[i] ~= '#' and string.match(flat[i + 1], '^(%d+) ')
    if at then
      found[#found + 1] = {flat[i], tonumber(at)}
    end
  end
  table.sort(found, function(one, other)
    return one[2] < other[2]
  end)
  return found
end

local function trim()
  if call('HLEN', writes) > MOST_WRITES + TRIM then
    for at, write in ipairs(written()) do
      if at > TRIM then
        return
      end
      call('HDEL', writes, write[1])
    end
  end
end

local function note(ticket)
  local key, nonce, mark = string.match(ticket, '^(%S+):%d+:(%x+):([bw]) ')
  if not key then
    return
  end
  local found = call('HMGET', writes, key, '#')
  if found[1] then
    local at, by = string.match(found[1], '^(%d+) (%S+)$')
    if at and by ~= nonce and by ~= '-' then
      call('HSET', writes, key, at .. ' -')
    end
    return
  end
  if mark == 'b' or found[2] then
    local at = string.format('%.0f', math.max(now, (tonumber(found[2]) or 0) + 1))
    call('HSET', writes, '#', at, key, at .. ' ' .. nonce)
    call('PEXPIRE', writes, KEPT_MS)
    trim()
  end
end

local function unnote(ticket)
  local key, nonce = string.match(ticket, '^(%S+):%d+:(%x+):[bw] ')
  local found = key and call('HGET', writes, key)
  if found and string.match(found, '(%S+)$') == nonce then
    call('HDEL', writes, key)
  end
end

if ARGV[1] == 'writes' then
  local reply = {}
  for _, write in ipairs(written()) do
    reply[#reply + 1], reply[#reply + 2] = write[1], write[2]
  end
  return reply
end

for _, ticket in ipairs(call('ZRANGEBYSCORE', alive, '-inf', now, 'LIMIT', 0, DROP_AT_ONCE)) do
  drop(ticket)
end
if ARGV[1] == 'take' then
  for i = 3, #ARGV do
    local ticket = ARGV[i]
    if not lives(ticket) or not call('ZSCORE', queue, ticket) then
      join(ticket)
    end
    call('ZADD', alive, now + ARGV[2], ticket)
  end
elseif ARGV[1] == 'keep' then
  for i = 3, #ARGV do
    if lives(ARGV[i]) and call('ZSCORE', queue, ARGV[i]) then
      call('ZADD', alive, now + ARGV[2], ARGV[i])
    end
  end
elseif ARGV[1] == 'give' then
  drop(ARGV[2])
  if ARGV[3] == '1' then
    unnote(ARGV[2])
  end
else
  local until_ms = call('ZSCORE', alive, ARGV[2])
  if until_ms and now - (tonumber(until_ms) - ARGV[3]) >= tonumber(ARGV[4]) then
    drop(ARGV[2])
  end
end
local turn = front()
note(turn)
expire_with_the_last()
return turn
