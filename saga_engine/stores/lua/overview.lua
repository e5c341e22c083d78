-- The work in a store, from numbers that are kept anyway.
--
-- KEYS  the `due` key of each partition
-- ARGV  the statuses
-- Reply {time in ms, queued, timed, since when the first waits in ms or -1, then the number of sagas in each status}

local now = now_ms()
local reply = {now, 0, 0, -1}
for k, due in ipairs(KEYS) do
  local tag = string.sub(due, 1, -4)
  local all, queued = redis.call('ZCARD', due), redis.call('ZCOUNT', due, '-inf', now)
  reply[2], reply[3] = reply[2] + queued, reply[3] + all - queued
  local first = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')
  if queued > 0 and (reply[4] == -1 or tonumber(first[2]) < reply[4]) then
    reply[4] = tonumber(first[2])
  end
  for i, status in ipairs(ARGV) do
    reply[4 + i] = (reply[4 + i] or 0) + redis.call('ZCARD', tag .. 'index:' .. status)
  end
end
return reply
