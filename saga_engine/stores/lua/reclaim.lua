-- One part of the scan of a partition's sagas: those of an owner that is gone go into the queue.
--
-- KEYS  the owners of a partition ('' for status: of any number)
-- ARGV  owner, -1 or, if it is provably dead, for how many ms its lease must not have been renewed, status, cursor,
--       how many to read ('' for status: it has no saga left)
-- Reply {next cursor, how many were queued}; {-1} the owner lives
--
-- LAW  Without a lease, an owner can neither write nor acquire, so it will get no further sagas.
--      The lease of a dead owner is ended first: one of its writes may still be on its way.
--      The lease key holds the time for which it is renewed: the part that has passed shows when it was last renewed.

local owners, owner, silent_ms, status = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
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
local left = ttl_of(tag, owner)
if left > 0 then
  local renewed_ms = string.match(redis.call('GET', tag .. 'lease:' .. owner) or '', '^%d+')
  local passed = (tonumber(renewed_ms) or 0) - left
  if silent_ms < 0 or (silent_ms > 0 and passed < silent_ms) then
    return {-1}
  end
  redis.call('DEL', tag .. 'lease:' .. owner)
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
  -- (A key that is not a hash was written by a foreign writer, and has no owner.)
  if redis.pcall('HGET', head, 'owner') == owner then
    redis.call('HSET', head, 'owner', '')
    redis.call('ZADD', tag .. 'due', now, id)
    hint(tag, '')
    moved = moved + 1
  end
end
return {tonumber(found[1]), moved}
