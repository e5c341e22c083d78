-- Extend a lease in every partition, unless it has ended in any: a lease that is over is never brought back, because
-- somebody may already have taken a saga on the strength of its end.
--
-- KEYS  the owner's session key and wake key of each partition, in turn
-- ARGV  ttl_ms
-- Reply {time in ms, 1 alive or 0 ended, id of an owned saga with mail...}; the wakes stay until the mail is consumed

local reply = {now_ms(), 1}
for k = 1, #KEYS, 2 do
  if redis.call('PTTL', KEYS[k]) <= 0 then -- over in its last millisecond, as everywhere else
    reply[2] = 0
    return reply
  end
end
for k = 1, #KEYS, 2 do
  redis.call('PEXPIRE', KEYS[k], ARGV[1])
  for _, id in ipairs(redis.call('SMEMBERS', KEYS[k + 1])) do
    reply[#reply + 1] = id
  end
end
return reply
