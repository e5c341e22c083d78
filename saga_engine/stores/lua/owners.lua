-- The owners that have, or had, a lease, and its remaining time.
--
-- KEYS  the owners of each partition
-- ARGV  'notes', or nothing
-- Reply {owner, ttl in ms, ...} over all keys; 0: the lease has ended. With 'notes' a note follows each time; an owner
--       has the same note in all partitions

local noted = ARGV[1] == 'notes'
local reply = {}
for _, owners in ipairs(KEYS) do
  local tag = string.sub(owners, 1, -7)
  for _, owner in ipairs(redis.call('SMEMBERS', owners)) do
    reply[#reply + 1], reply[#reply + 2] = owner, ttl_of(tag, owner)
    if noted then
      local lease = redis.call('GET', tag .. 'lease:' .. owner) or ''
      reply[#reply + 1] = string.sub(lease, (string.find(lease, ' ', 1, true) or #lease) + 1)
    end
  end
end
return reply
