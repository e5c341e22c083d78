-- Remove a saga that has ended, with everything that the store has of it.
--
-- KEYS  head
-- ARGV  status, epoch and length of the journal, as they were when it was decided to remove it
-- Reply 1 removed; 0 it is not as it was, and nothing changed; -1 no such saga
--
-- LAWS
-- 1. Only a saga with a final status that no process owns is removed, in one script: no reader finds a part of it.
-- 2. Whoever takes a saga makes a new epoch. So one that is used meanwhile (its effects are transferred, say) stays.
-- 3. The memory of guards is not the saga's: what a key has done is known as long as the tool said.

local call = redis.call
local head = KEYS[1]
local tag, id = parts(head)
local found = call('HMGET', head, 'status', 'epoch', 'owner')
if not found[1] then
  return call('EXISTS', head) == 0 and -1 or 0
end
local journal = tag .. 'journal:' .. id
if not FINAL[found[1]] or found[1] ~= ARGV[1] or found[2] ~= ARGV[2] or ttl_of(tag, found[3] or '') > 0
  or call('LLEN', journal) ~= tonumber(ARGV[3]) then
  return 0
end
call('UNLINK', journal, head, tag .. 'values:' .. id, tag .. 'messages:' .. id, tag .. 'posted:' .. id,
  tag .. 'tally:' .. id)
for _, key in ipairs({'index:' .. found[1], 'expiry', 'due'}) do
  call('ZREM', tag .. key, id)
end
if found[3] and found[3] ~= '' then
  call('SREM', tag .. 'wake:' .. found[3], id)
end
forget_terms(tag, id, call)
return 1
