-- The queue for a resource: one at a time, first come first served, and an expired ticket loses its place.
--
-- KEYS  queue (tickets by number of arrival) and alive (tickets by the ms in which they die)
-- ARGV  'take', ttl_ms, ticket...     join in this order, or be kept alive
--       'keep', ttl_ms, ticket...     be kept alive; one that is dead or gone joins no more
--       'give', ticket                leave
--       'free', ticket, ttl_ms, silent_ms   drop the ticket of another process that is dead, unless it was kept alive,
--                                     with ttl_ms, in the last silent_ms
-- Reply the ticket whose turn it is, '' for an empty queue
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

local call = redis.call
local DROP_AT_ONCE = 64

local queue, alive = KEYS[1], KEYS[2]
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
else
  local until_ms = call('ZSCORE', alive, ARGV[2])
  if until_ms and now - (tonumber(until_ms) - ARGV[3]) >= tonumber(ARGV[4]) then
    drop(ARGV[2])
  end
end
local turn = front()
expire_with_the_last()
return turn
