-- Events that a saga was told of some time ago, and has not settled.
--
-- KEYS  due of each partition, as in `events`
-- ARGV  older_ms, limit
-- Reply the members that are due; they count as told now

local call = redis.call
local older_ms, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local now = now_ms()
local found = {}
for _, due in ipairs(KEYS) do
  local members = limit > #found and call('ZRANGEBYSCORE', due, '-inf', now - older_ms, 'LIMIT', 0, limit - #found)
  for _, member in ipairs(members or {}) do
    call('ZADD', due, now, member)
    found[#found + 1] = member
  end
end
return found
