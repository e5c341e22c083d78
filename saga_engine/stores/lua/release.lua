-- Release a saga, if the epoch is still its epoch. A repeat changes nothing.
--
-- KEYS  head
-- ARGV  epoch, due_ms: when it needs a worker (0: never, -1: as it is queued)
--
-- LAWS
-- 1. A saga that has ended and was queued, because others are to be told what follows, is taken out of the queue.
-- 2. Messages that came while it was owned were left to the owner, who has not read them: a worker does. At once if
--    the saga was released without a time; soon if it has one, whose reason may hold for the messages as well.

local SOON_MS = 5000

local found = redis.call('HMGET', KEYS[1], 'epoch', 'owner', 'status')
if found[1] == ARGV[1] and found[2] ~= '' then
  local tag, id = parts(KEYS[1])
  local now, due_ms = now_ms(), tonumber(ARGV[2])
  if not FINAL[found[3]] and redis.call('LLEN', tag .. 'messages:' .. id) > 0 then
    due_ms = due_ms == 0 and now or math.min(due_ms, now + SOON_MS)
  end
  redis.call('SREM', tag .. 'wake:' .. found[2], id)
  redis.call('HSET', KEYS[1], 'owner', '')
  if due_ms > 0 then
    wait_for_worker(tag, id, due_ms, now)
  else
    redis.call('HSET', KEYS[1], 'idle', '1') -- on purpose: `sweep` does not count it as orphaned
    if FINAL[found[3]] and due_ms == 0 then
      redis.call('ZREM', tag .. 'due', id)
    end
  end
elseif found[1] == ARGV[1] and FINAL[found[3]] and tonumber(ARGV[2]) == 0 then
  local tag, id = parts(KEYS[1])
  redis.call('ZREM', tag .. 'due', id)
end
return 0
