-- Give a saga up, if the epoch is still its epoch. Asked again, it changes nothing.
--
-- KEYS  head
-- ARGV  epoch, due_ms: when it wants a worker (0: never)

local found = redis.call('HMGET', KEYS[1], 'epoch', 'owner')
if found[1] == ARGV[1] and found[2] ~= '' then
  local tag, id = parts(KEYS[1])
  redis.call('SREM', tag .. 'wake:' .. found[2], id)
  redis.call('HSET', KEYS[1], 'owner', '')
  local due_ms = tonumber(ARGV[2])
  if due_ms > 0 then
    redis.call('ZADD', tag .. 'due', math.max(due_ms, now_ms()), id)
  end
end
return 0
