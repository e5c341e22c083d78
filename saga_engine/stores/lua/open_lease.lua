-- Start (or restart) the lease of an owner in every partition. One lease covers all the sagas of a process.
--
-- KEYS  the owner's lease key and the owners of each partition, in turn
-- ARGV  ttl_ms, owner, what the owner notes in its lease
-- Reply the time in ms
--
-- The lease key holds its ttl_ms, so that its remaining time shows when it was last renewed (see `reclaim`), a space,
-- and the note, which so lasts exactly as long as the lease.
--
-- LAW  An owner with a lease is among the owners until none of its sagas is left: that is how dead owners are found.

local now = now_ms()
for k = 1, #KEYS, 2 do
  seen_ms(string.sub(KEYS[k + 1], 1, -7), now)
  redis.call('SET', KEYS[k], ARGV[1] .. ' ' .. ARGV[3], 'PX', ARGV[1])
  redis.call('SADD', KEYS[k + 1], ARGV[2])
end
return now
