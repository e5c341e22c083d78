-- Write or remove a named document.
--
-- KEYS  the document, the names of its kind, the due times of its kind
-- ARGV  name, the revision that it has (0: none), due_ms (0: never), then its new body; without a body it is removed
-- Reply its new revision (0: removed), or -1: it has another revision, and nothing has changed
--
-- LAWS
-- 1. The revision is the fence: of several writers with one revision, one succeeds.
-- 2. A write that is repeated because its response was lost succeeds again, and changes nothing.
-- 3. A revision is never used twice, also if the document was removed: the clock makes the first one.

local call = redis.call
local name, expected, due, body = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local found = call('HMGET', KEYS[1], 'revision', 'before', 'body')
local revision = tonumber(found[1] or '0')

if not body then
  if revision ~= 0 and revision ~= expected then
    return -1
  end
  call('DEL', KEYS[1])
  call('ZREM', KEYS[2], name)
  call('ZREM', KEYS[3], name)
  return 0
end
if revision ~= expected then
  return (revision ~= 0 and tonumber(found[2]) == expected and found[3] == body) and revision or -1
end
revision = math.max(revision + 1, expected == 0 and now_ms() or 0)
call('HSET', KEYS[1], 'revision', string.format('%d', revision), 'before', string.format('%d', expected), 'body', body)
call('ZADD', KEYS[2], 0, name)
if due > 0 then
  call('ZADD', KEYS[3], string.format('%d', due), name)
else
  call('ZREM', KEYS[3], name)
end
return revision
