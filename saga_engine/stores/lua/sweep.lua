-- One part of the scan of sagas that have not ended. A saga that nobody owns and that is not queued goes into the
-- queue.
--
-- KEYS  the owners of partitions
-- ARGV  owner, 1 to queue orphaned sagas or 0 to count them, how many sagas to read, where to begin (key, status,
--       cursor; 0 0 0 is the beginning), then the statuses
-- Reply {where to continue: key, status, cursor (0 0 0: this was the end), how many orphans, {id of each saga that
--       cannot be read...}, id and epoch of each saga of `owner`...}
--
-- LAWS
-- 1. A saga whose owner's lease has ended has no owner: the former owner can neither write nor acquire.
-- 2. A saga that waits for an operator, and one that was released until its agent restarts (`idle`), needs no worker.
-- 3. A saga with damaged keys cannot run: nobody queues it, and it is reported instead.

local call = redis.call
local owner, queue, left = ARGV[1], ARGV[2] == '1', tonumber(ARGV[3])
local key, status, cursor = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local statuses = #ARGV - 6
local now = now_ms()
local reply = {0, 0, '0', 0, {}}

local function is_orphan(tag, id, name, found)
  if found[1] ~= '' then
    return ttl_of(tag, found[1]) == 0
  end
  if name == 'ESCALATED' or found[3] then
    return false
  end
  local due = call('ZSCORE', tag .. 'due', id)
  return not due or tonumber(due) == math.huge
end

-- Whether a saga exists and a foreign writer damaged its keys.
local function is_damaged(tag, id, found)
  if found.err then
    return true
  end
  if not (found[1] and found[4] and is_number(found[2])) then
    return call('EXISTS', tag .. 'head:' .. id) == 1
  end
  return false
end

-- (Checked only before it is queued, because of the cost.)
local function can_be_driven(tag, id)
  local journal, messages = redis.pcall('LLEN', tag .. 'journal:' .. id), redis.pcall('LLEN', tag .. 'messages:' .. id)
  return type(journal) == 'number' and type(messages) == 'number'
end

local function add_orphan(tag, id, head)
  reply[4] = reply[4] + 1
  if queue then
    call('HSET', head, 'owner', '')
    call('ZADD', tag .. 'due', now, id)
    hint(tag, '')
  end
end

while left > 0 and key < #KEYS do
  local tag = string.sub(KEYS[key + 1], 1, -7)
  local name = ARGV[7 + status]
  local piece = call('ZSCAN', tag .. 'index:' .. name, cursor, 'COUNT', left)
  cursor = type(piece[1]) == 'number' and string.format('%.0f', piece[1]) or piece[1]
  for i = 1, #piece[2], 2 do
    local id = piece[2][i]
    local head = tag .. 'head:' .. id
    local found = redis.pcall('HMGET', head, 'owner', 'epoch', 'idle', 'status')
    left = left - 1
    if is_damaged(tag, id, found) then
      table.insert(reply[5], id)
    elseif found[4] == name and found[1] == owner then
      reply[#reply + 1], reply[#reply + 2] = id, tonumber(found[2])
    elseif found[4] == name and is_orphan(tag, id, name, found) then
      if can_be_driven(tag, id) then
        add_orphan(tag, id, head)
      else
        table.insert(reply[5], id)
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
