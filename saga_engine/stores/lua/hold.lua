-- Take the time-out from ended sagas of a partition: from now on only `purge` removes them.
--
-- KEYS  the sagas of the partition by their expiry
-- ARGV  how many to look at
-- Reply how many entries there were: less than asked for means that it was the last piece
--
-- LAW  A saga whose keys have expired before leaves only what the indexes still have of it, and that is removed.

local call = redis.call
local tag = string.sub(KEYS[1], 1, -7)
local found = call('ZRANGE', KEYS[1], 0, ARGV[1] - 1)
for _, id in ipairs(found) do
  if call('EXISTS', tag .. 'head:' .. id) == 1 then
    for _, kind in ipairs({'journal:', 'head:', 'values:', 'messages:', 'tally:'}) do
      call('PERSIST', tag .. kind .. id)
    end
  else
    for status in pairs(FINAL) do
      call('ZREM', tag .. 'index:' .. status, id)
    end
    forget_terms(tag, id, call)
  end
end
if #found > 0 then
  call('ZREM', KEYS[1], unpack(found))
end
return #found
