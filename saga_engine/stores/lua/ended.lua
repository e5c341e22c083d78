-- The sagas of a final status that ended long enough ago, those that ended first in front.
--
-- KEYS  an index of a final status
-- ARGV  how many ms ago at least, how many to pass over, how many to return
-- Reply {now_ms, id...}

local now = now_ms()
local reply = {now}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[1], 'LIMIT', ARGV[2], ARGV[3])) do
  reply[#reply + 1] = id
end
return reply
