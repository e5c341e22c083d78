-- The last good result of a read.
--
-- KEYS  good
-- ARGV  'look'; or 'keep', ttl_ms, result
-- Reply look: {result, age in ms} or false; keep: 0
--
-- LAW  The last one kept replaces the one before; its age counts from then, on the server's clock.

if ARGV[1] == 'keep' then
  redis.call('HSET', KEYS[1], 'result', ARGV[3], 'at_ms', now_ms())
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 0
end
local found = redis.call('HMGET', KEYS[1], 'result', 'at_ms')
if not found[1] then
  return false
end
return {found[1], math.max(now_ms() - found[2], 0)}
