-- The owners that have, or had, a lease, and its remaining time.
--
-- KEYS  the owners of each partition
-- Reply {owner, ttl in ms, ...} over all keys; 0: the lease has ended

local reply = {}
for _, owners in ipairs(KEYS) do
  local tag = string.sub(owners, 1, -7)
  for _, owner in ipairs(redis.call('SMEMBERS', owners)) do
    reply[#reply + 1], reply[#reply + 2] = owner, ttl_of(tag, owner)
  end
end
return reply
