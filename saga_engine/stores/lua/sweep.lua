-- A piece of the way through the sagas that have not ended. One that nobody owns and nobody queued goes into the queue.
--
-- KEYS  the owners of partitions
-- ARGV  owner, 1 to queue what is found or 0 to count it, how many sagas to look at, where to begin (key, status, cursor;
--       0 0 0 is the beginning), then the statuses
-- Reply {where to go on: key, status, cursor (0 0 0: this was the end), how many orphans, id and epoch of each saga of `owner`...}
--
-- LAWS
-- 1. A saga whose owner's session has ended is nobody's: the owner can neither write nor acquire.
-- 2. What rests for a person, and what was given up for its agent (`idle`), wants no worker.

local call = redis.call
local owner, queue, left = ARGV[1], ARGV[2] == '1', tonumber(ARGV[3])
local key, status, cursor = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local statuses = #ARGV - 6
local now = now_ms()
local reply = {0, 0, '0', 0}

local function is_orphan(tag, id, name, found)
  if found[1] ~= '' then
    return ttl_of(tag, found[1]) == 0
  end
  return name ~= 'ESCALATED' and not found[3] and not call('ZSCORE', tag .. 'due', id)
end

while left > 0 and key < #KEYS do
  local tag = string.sub(KEYS[key + 1], 1, -7)
  local name = ARGV[7 + status]
  local piece = call('ZSCAN', tag .. 'index:' .. name, cursor, 'COUNT', left)
  cursor = type(piece[1]) == 'number' and string.format('%.0f', piece[1]) or piece[1]
  for i = 1, #piece[2], 2 do
    local id = piece[2][i]
    local head = tag .. 'head:' .. id
    local found = redis.pcall('HMGET', head, 'owner', 'epoch', 'idle', 'status') -- (an error has no fields)
    left = left - 1
    if found[1] and found[4] == name then
      if found[1] == owner then
        reply[#reply + 1], reply[#reply + 2] = id, tonumber(found[2])
      elseif is_orphan(tag, id, name, found) then
        reply[4] = reply[4] + 1
        if queue then
          call('HSET', head, 'owner', '')
          call('ZADD', tag .. 'due', now, id)
        end
      end
    end
  end
  if cursor == '0' then
    status = status + 1
    if status == statuses then
      key, status = key + 1, 0
    end
  end
end
if key < #KEYS then
  reply[1], reply[2], reply[3] = key, status, cursor
end
return reply
