-- Extend a lease in every partition, unless it has ended in any: a lease that has ended is never restored, because
-- another process may already have taken over a saga.
--
-- KEYS  the owner's lease key and wake key of each partition, in turn
-- ARGV  ttl_ms
-- Reply {time in ms, 1 alive or 0 ended, id of an owned saga with messages...}; a wake stays until the saga's messages
--       are consumed
--
-- LAW  Nobody waits for a clock that stepped back. `clock` is the latest time that was seen in a partition. If it is in
--      the future, times that this clock wrote are moved back by the same amount: the times in `due` that had not come
--      then, and the ends of leases. A saga that is taken over too early goes back into the queue; a live owner renews.

local STEP_MS = 2000

local call = redis.call
local now = now_ms()

local function step_back(tag, seen)
  local by = seen - now
  local due = tag .. 'due'
  local later = call('ZRANGEBYSCORE', due, '(' .. seen, '+inf', 'WITHSCORES')
  for i = 1, #later, 2 do
    call('ZADD', due, later[i + 1] - by, later[i])
  end
  for _, owner in ipairs(call('SMEMBERS', tag .. 'owners')) do
    local left = call('PTTL', tag .. 'lease:' .. owner)
    if left > by then
      call('PEXPIRE', tag .. 'lease:' .. owner, left - by)
    end
  end
end

local function look_at_clock(tag)
  local seen = seen_ms(tag, now)
  if seen > now + STEP_MS then
    step_back(tag, seen)
    call('SET', tag .. 'clock', now)
  end
end

local reply = {now, 1}
for k = 1, #KEYS, 2 do
  if call('PTTL', KEYS[k]) <= 0 then -- in its last millisecond it has ended, as everywhere else
    reply[2] = 0
    return reply
  end
end
for k = 1, #KEYS, 2 do
  look_at_clock(string.sub(KEYS[k], 1, string.find(KEYS[k], '}:', 1, true) + 1))
  call('PEXPIRE', KEYS[k], ARGV[1])
  for _, id in ipairs(call('SMEMBERS', KEYS[k + 1])) do
    reply[#reply + 1] = id
  end
end
return reply
