-- Start (or start anew) the lease of an owner in every partition. One lease covers all the sagas of a process.
--
-- KEYS  the owner's session key and the owners of each partition, in turn
-- ARGV  ttl_ms, owner
-- Reply the time in ms
--
-- The session holds its ttl_ms, so that what is left of it tells when it was renewed last (see `reclaim`).
--
-- LAW  Whoever has a session stands among the owners until none of its sagas is left to anybody: who died is found there.

local now = now_ms()
for k = 1, #KEYS, 2 do
  seen_ms(string.sub(KEYS[k + 1], 1, -7), now)
  redis.call('SET', KEYS[k], ARGV[1], 'PX', ARGV[1])
  redis.call('SADD', KEYS[k + 1], ARGV[2])
end
return now
