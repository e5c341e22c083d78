-- Acquire sagas that need a worker now, as `acquire` does, but many in one call, with their journals.
--
-- KEYS  the `due` key of each partition
-- ARGV  owner, nonce, limit
-- Reply {time in ms, 1 alive or 0 our lease has ended, next due in ms or -1, then for each saga taken:
--       id, epoch, length, waiting messages, {record...} or false if the journal is too long for this reply}
--
-- LAWS
-- 1. The ids of the taken sagas are kept under the nonce, longer than any caller waits for an answer. A repeat with it
--    after a lost reply gets the same sagas, if they are still ours: we own no saga without knowing it.
-- 2. A member of `due` that is gone, or is owned under a valid lease, is wrong: this script removes it. One that has
--    ended is there because others are to be told what follows: it stays, for later, until its owner releases it.
-- 3. A saga with damaged keys cannot run: it is removed from the queue, and the others are served.
-- 4. A key of a partition that has a wrong type is an error before any write: it is mended, and the call is repeated.

local call = redis.call
local LONGEST = 256
local REPLY_BYTES = 4 * 1024 * 1024
local ANOTHER_MS = 10 * 1000
local REMEMBERED_MS = 24 * 3600 * 1000

local owner, nonce, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local now = now_ms()
local reply = {now, 1, -1}
local size = 0

local function tag_of(due)
  return string.sub(due, 1, -4)
end

local function add(tag, id, epoch)
  local length = call('LLEN', tag .. 'journal:' .. id)
  local records = false
  if length <= LONGEST and size < REPLY_BYTES then
    records = call('LRANGE', tag .. 'journal:' .. id, 0, -1)
    for _, record in ipairs(records) do
      size = size + #record
    end
  end
  local at = #reply
  reply[at + 1], reply[at + 2], reply[at + 3] = id, epoch, length
  reply[at + 4], reply[at + 5] = call('LLEN', tag .. 'messages:' .. id), records
end

-- Owner and status of a saga; false for one that is gone or cannot be read (`sweep` reports it).
local function readable(tag, id)
  local went, found = pcall(function()
    call('LLEN', tag .. 'journal:' .. id)
    call('LLEN', tag .. 'messages:' .. id)
    return call('HMGET', tag .. 'head:' .. id, 'owner', 'status', 'epoch')
  end)
  return went and found[1] and found[2] and is_number(found[3]) and found
end

for _, due in ipairs(KEYS) do
  if ttl_of(tag_of(due), owner) == 0 then
    reply[2] = 0
    return reply
  end
  call('ZCARD', due)
  call('LLEN', tag_of(due) .. 'taken:' .. owner)
end

local again = false
for _, due in ipairs(KEYS) do
  local tag = tag_of(due)
  local taken = tag .. 'taken:' .. owner
  if call('LINDEX', taken, 0) == nonce then
    again = true
    for _, id in ipairs(call('LRANGE', taken, 1, -1)) do
      local found = call('HMGET', tag .. 'head:' .. id, 'owner', 'epoch')
      if found[1] == owner then
        add(tag, id, tonumber(found[2]))
      end
    end
  end
end

for _, due in ipairs(KEYS) do
  local tag = tag_of(due)
  local names = {}
  if not again and limit > 0 then
    for _, id in ipairs(call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, limit)) do
      local head = tag .. 'head:' .. id
      local found = readable(tag, id)
      if found and FINAL[found[2]] then
        call('ZADD', due, now + ANOTHER_MS, id) -- neither `reclaim` nor `sweep` looks for it if its owner dies
      else
        call('ZREM', due, id)
      end
      if found and ttl_of(tag, found[1]) == 0 then
        if found[1] ~= '' then
          redis.pcall('SREM', tag .. 'wake:' .. found[1], id)
        end
        call('HSET', head, 'owner', owner)
        call('HDEL', head, 'idle')
        add(tag, id, call('HINCRBY', head, 'epoch', 1))
        names[#names + 1] = id
        limit = limit - 1
      end
    end
    if #names > 0 then
      local taken = tag .. 'taken:' .. owner
      call('DEL', taken)
      call('RPUSH', taken, nonce, unpack(names))
      call('PEXPIRE', taken, REMEMBERED_MS)
    end
  end
  local first = call('ZRANGE', due, 0, 0, 'WITHSCORES')
  if first[2] and (reply[3] == -1 or tonumber(first[2]) < reply[3]) then
    reply[3] = tonumber(first[2])
  end
end
return reply
