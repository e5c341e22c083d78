-- A piece of the way through a partition's sagas: those of an owner that is gone go into the queue.
--
-- KEYS  the owners of a partition ('' for status: of any number)
-- ARGV  owner, 1 if it is provably dead, status, cursor, how many to look at ('' for status: it has no saga left)
-- Reply {next cursor, how many were put there}; {-1} the owner lives
--
-- LAW  With its session over, an owner can neither write nor acquire, so what is not its saga now will not become so.
--      That of a dead one is ended first: a write that it sent with its last breath may still be on its way.

local owners, owner, dead, status = KEYS[1], ARGV[1], ARGV[2] == '1', ARGV[3]
if #KEYS > 1 then
  for _, key in ipairs(KEYS) do
    local its = string.sub(key, 1, -7)
    if ttl_of(its, owner) > 0 then
      return {-1}
    end
    redis.call('SREM', key, owner)
    redis.call('DEL', its .. 'wake:' .. owner, its .. 'taken:' .. owner)
  end
  return {0, 0}
end
local tag = string.sub(owners, 1, -7)
if dead then
  redis.call('DEL', tag .. 'session:' .. owner)
elseif ttl_of(tag, owner) > 0 then
  return {-1}
end
if status == '' then
  redis.call('SREM', owners, owner)
  redis.call('DEL', tag .. 'wake:' .. owner, tag .. 'taken:' .. owner)
  return {0, 0}
end
local now, moved = now_ms(), 0
local found = redis.call('ZSCAN', tag .. 'index:' .. status, ARGV[4], 'COUNT', ARGV[5])
for i = 1, #found[2], 2 do
  local id = found[2][i]
  local head = tag .. 'head:' .. id
  -- (What is no hash was written by somebody else, and has no owner.)
  if redis.pcall('HGET', head, 'owner') == owner then
    redis.call('HSET', head, 'owner', '')
    redis.call('ZADD', tag .. 'due', now, id)
    moved = moved + 1
  end
end
return {tonumber(found[1]), moved}
