-- Documents whose time has come.
--
-- KEYS  the due times of a kind
-- ARGV  how many at most
-- Reply {now, name, name, ...}, the longest waiting first

local now = now_ms()
local reply = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, tonumber(ARGV[1]))
table.insert(reply, 1, now)
return reply
