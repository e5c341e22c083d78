-- The wrapped key of a saga, or of the store.
--
-- KEYS  head, or meta
-- ARGV  'replace', the key that must be there ('' none), the new one
--       'erase', summary: of a saga that has ended
-- Reply 'replace': the key that is there now, false if there is no such saga
--       'erase': 1 done, 0 the saga has not ended, -1 there is no such saga
--
-- LAWS
-- 1. A key that somebody else has replaced meanwhile is not replaced: data are sealed with one key of a saga for ever,
--    and only its wrapping changes.
-- 2. With its key a saga loses everything that only the key can read, except its journal, whose sealed bytes stay as
--    they are. What identifies its plan goes as well.
-- 3. Repeating either changes nothing more.

local call = redis.call
local key = KEYS[1]

if ARGV[1] == 'replace' then
  if call('EXISTS', key) == 0 then
    return false
  end
  local present = call('HGET', key, 'key') or ''
  if present == ARGV[2] then
    call('HSET', key, 'key', ARGV[3])
    present = ARGV[3]
  end
  return present
end

local status = call('HGET', key, 'status')
if not status then
  return -1
end
if not FINAL[status] then
  return 0
end
local tag, id = parts(key)
call('HSET', key, 'summary', ARGV[2], 'digest', '')
call('HDEL', key, 'key', 'messages')
call('DEL', tag .. 'values:' .. id, tag .. 'messages:' .. id, tag .. 'tally:' .. id, tag .. 'posted:' .. id)
call('HDEL', key, 'values', 'tally')
forget_terms(tag, id, call)
return 1
