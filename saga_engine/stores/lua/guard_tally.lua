-- A tally: one text for each owner.
--
-- KEYS  tally
-- ARGV  'look'; or 'set', ttl_ms, owner, entry; or 'drop', ttl_ms, owner
-- Reply look: a flat list of owner and entry; set and drop: 0
--
-- LAW  An owner has one entry, so a repeat changes nothing but the time that the tally is kept.

local verb = ARGV[1]
if verb == 'look' then
  return redis.call('HGETALL', KEYS[1])
end
if verb == 'set' then
  redis.call('HSET', KEYS[1], ARGV[3], ARGV[4])
else
  redis.call('HDEL', KEYS[1], ARGV[3])
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 0
