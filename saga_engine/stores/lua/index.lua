-- The ids in indexes with their times, the most recently changed first.
--
-- KEYS  index keys
-- ARGV  how many of each
-- Reply {id, changed_ms, id, changed_ms, ...} over all keys

local reply = {}
for _, index in ipairs(KEYS) do
  for _, item in ipairs(redis.call('ZREVRANGE', index, 0, ARGV[1] - 1, 'WITHSCORES')) do
    reply[#reply + 1] = item
  end
end
return reply
