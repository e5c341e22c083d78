-- Start (or start anew) the lease of an owner in every partition. One lease covers all the sagas of a process.
--
-- KEYS  the owner's session key and the owners of each partition, in turn
-- ARGV  ttl_ms, owner
-- Reply the time in ms
--
-- LAW  Whoever has a session stands among the owners until none of its sagas is left to anybody: who died is found there.

for k = 1, #KEYS, 2 do
  redis.call('SET', KEYS[k], '1', 'PX', ARGV[1])
  redis.call('SADD', KEYS[k + 1], ARGV[2])
end
return now_ms()
