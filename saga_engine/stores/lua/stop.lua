-- The stops of an operator: no forward call of all tools, of a tool or of a saga starts until they are lifted.
--
-- KEYS  the stops of each partition: a hash with an entry for each scope, and their version as '#'
-- ARGV  'read'
--       'set', scope, entry ('' lifts it)                  of the first partition, whose stops are the original
--       'copy', version, then scope and entry of each      to partitions that have an older version
-- Reply {version, scope, entry, ...} of the first key
--
-- LAWS
-- 1. Versions only grow, also when the server's data were restored from an older state: they contain the time.
-- 2. Every append to a partition replies with its version (see `append`), so a process that writes an intent after a
--    stop was copied knows of it before it makes the call.
-- 3. Repeating any of these changes nothing more: a stop that is set twice is one stop.
-- 4. A key of a wrong type, from a foreign writer, is overwritten.

local call = redis.call
local mode = ARGV[1]

local function version_of(key)
  local found = redis.pcall('HGET', key, '#')
  if type(found) == 'table' and found.err then
    call('DEL', key)
    return 0
  end
  return tonumber(found) or 0
end

if mode == 'set' then
  local version = math.max(version_of(KEYS[1]) + 1, now_ms())
  call('HSET', KEYS[1], '#', string.format('%.0f', version))
  if ARGV[3] == '' then
    call('HDEL', KEYS[1], ARGV[2])
  else
    call('HSET', KEYS[1], ARGV[2], ARGV[3])
  end
elseif mode == 'copy' then
  for _, key in ipairs(KEYS) do
    if version_of(key) < tonumber(ARGV[2]) then
      call('DEL', key)
      call('HSET', key, '#', ARGV[2])
      for i = 3, #ARGV, 2 do
        call('HSET', key, ARGV[i], ARGV[i + 1])
      end
    end
  end
end

local reply = {version_of(KEYS[1])}
local all = call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  if all[i] ~= '#' then
    reply[#reply + 1], reply[#reply + 2] = all[i], all[i + 1]
  end
end
return reply
