-- Give a saga up, if the epoch is still its epoch. Asked again, it changes nothing.
--
-- KEYS  head
-- ARGV  epoch

local found = redis.call('HMGET', KEYS[1], 'epoch', 'owner')
if found[1] == ARGV[1] and found[2] ~= '' then
  local tag, id = parts(KEYS[1])
  redis.call('SREM', tag .. 'wake:' .. found[2], id)
  redis.call('HSET', KEYS[1], 'owner', '')
end
return 0
