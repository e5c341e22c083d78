-- Take a saga, if no owner with a valid lease has it.
--
-- KEYS  journal and head
-- ARGV  owner, dead_owner ('' for none)
-- Reply {1, epoch, seq, message...} taken; {0, owner, ttl} held by another; {-1} no such saga; {-2} our lease has
--       ended; {-3} its head is damaged
--
-- LAWS
-- 1. Each success makes a new, greater epoch, so a repeat after a lost reply merely makes one more.
-- 2. A saga that has ended and is queued, because others are to be told what follows, stays in the queue, for later: a
--    fork or an undo that takes it may die as well.

local journal, head = KEYS[1], KEYS[2]
local ANOTHER_MS = 10 * 1000
local owner, dead_owner = ARGV[1], ARGV[2]
local tag, id = parts(head)

local holder, epoch, status = unpack(redis.call('HMGET', head, 'owner', 'epoch', 'status'))
if not (holder and status and is_number(epoch)) then
  return {redis.call('EXISTS', head) == 0 and -1 or -3}
end
if ttl_of(tag, owner) == 0 then
  return {-2}
end
if holder ~= owner and holder ~= dead_owner then
  local ttl = ttl_of(tag, holder)
  if ttl > 0 then
    return {0, holder, ttl}
  end
end
if holder ~= '' and holder ~= owner then
  redis.call('SREM', tag .. 'wake:' .. holder, id)
end
redis.call('HSET', head, 'owner', owner)
redis.call('HDEL', head, 'idle')
if FINAL[status] then
  redis.call('ZADD', tag .. 'due', 'XX', now_ms() + ANOTHER_MS, id)
else
  redis.call('ZREM', tag .. 'due', id)
end
local reply = {1, redis.call('HINCRBY', head, 'epoch', 1), redis.call('LLEN', journal)}
for _, message in ipairs(redis.call('LRANGE', tag .. 'messages:' .. id, 0, -1)) do
  reply[#reply + 1] = message
end
return reply
