-- The tallies of a saga: one text for each owner in each of them.
--
-- KEYS  tallies and head of the saga
-- ARGV  'look', tally; or 'set', tally, ttl_ms, owner, entry; or 'drop', tally, ttl_ms, owner
-- Reply look: a flat list of owner and entry; set and drop: 0
--
-- LAWS
-- 1. An owner has one entry, so a repeat changes nothing.
-- 2. The tallies of a saga that has not ended have no TTL; `append` gives them that of the saga when it ends. Only
--    those of a saga whose journal is elsewhere (in Temporal) are kept for ttl_ms after the last change.

local call = redis.call
local tallies, head = KEYS[1], KEYS[2]
local verb, prefix = ARGV[1], ARGV[2] .. ':'

if verb == 'look' then
  local reply = {}
  local found = call('HGETALL', tallies)
  for i = 1, #found, 2 do
    if string.sub(found[i], 1, #prefix) == prefix then
      reply[#reply + 1], reply[#reply + 2] = string.sub(found[i], #prefix + 1), found[i + 1]
    end
  end
  return reply
end
if verb == 'set' then
  call('HSET', tallies, prefix .. ARGV[4], ARGV[5])
else
  call('HDEL', tallies, prefix .. ARGV[4])
end
local status = call('HGET', head, 'status')
if not status then
  call('PEXPIRE', tallies, ARGV[3])
elseif FINAL[status] then
  local ttl = call('PTTL', head)
  if ttl > 0 then
    call('PEXPIRE', tallies, ttl)
  end
else
  call('PERSIST', tallies)
  call('HSET', head, 'tally', '1')
end
return 0
