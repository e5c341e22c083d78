-- Group commit. Every entry stands or falls by itself; whatever is not 'ok' changed nothing.
--
-- KEYS  journal and head of each entry, in turn
-- ARGV  owner, then for each entry: epoch, seq, n, flags, the arguments of the flags in the order below, n records
--       c creation: digest      o creation owned by `owner`      v values: count, then digest and bytes of each
--       s status                m summary                        r release
--       i consumed messages     k keep_ms
-- Reply the time in ms, then one item for each entry: code + 4 * waiting messages, or the digest of the saga that exists
--       0 ok   1 fenced   2 conflict   3 missing
--
-- LAWS
-- 1. An append that is already there, asked again under the same epoch, is 'ok' and nothing is applied a second time.
--    The epoch judges, not the owner: the first application may have released the saga.
-- 2. The epoch is the fence. The owner's session must live as well, so a coordinator that slept past its lease cannot
--    write even if nobody has taken over yet; the server's clock decides.
-- 3. All checks of an entry come before its first write. Its journal is written before what a repeat must not do twice
--    (trim the inbox, clear the owner), so a command that the server refuses half-way loses no message.
-- 4. A live saga has no TTL. Only a final status sets one, and anything appended after that takes it away again.

local OK, FENCED, CONFLICT, MISSING = 0, 1, 2, 3
local FINAL = {COMPLETED = true, COMPENSATED = true, ABANDONED = true}
local NOTHING = {}
local PURGE_AT_ONCE = 64
-- Lua's stack bounds how many values one call can take.
local PUSH_AT_ONCE = 1000

local owner = ARGV[1]
local now = now_ms()
local sessions = {}
local next_arg = 2

local function take()
  local value = ARGV[next_arg]
  next_arg = next_arg + 1
  return value
end

local function options(flags)
  if flags == '' then
    return NOTHING
  end
  local function has(flag)
    return string.find(flags, flag, 1, true)
  end
  local chosen = {owned = has('o'), release = has('r')}
  if has('c') then chosen.digest = take() end
  if has('v') then
    local count = tonumber(take())
    chosen.values_from, chosen.values_to = next_arg, next_arg + 2 * count - 1
    next_arg = next_arg + 2 * count
  end
  if has('s') then chosen.status = take() end
  if has('m') then chosen.summary = take() end
  if has('i') then chosen.consumed = tonumber(take()) end
  if has('k') then chosen.keep_ms = tonumber(take()) end
  return chosen
end

-- One look per partition and call: time stands still inside a script.
local function alive(tag)
  local known = sessions[tag]
  if known == nil then
    known = redis.call('EXISTS', tag .. 'session:' .. owner) == 1
    sessions[tag] = known
  end
  return known
end

local function same(journal, seq, first, last)
  local there = redis.call('LRANGE', journal, seq, seq + last - first)
  if #there ~= last - first + 1 then
    return false
  end
  for i = first, last do
    if there[i - first + 1] ~= ARGV[i] then
      return false
    end
  end
  return true
end

local function push(journal, first, last)
  for from = first, last, PUSH_AT_ONCE do
    redis.call('RPUSH', journal, unpack(ARGV, from, math.min(from + PUSH_AT_ONCE - 1, last)))
  end
end

local function store_values(tag, id, chosen)
  if chosen.values_from then
    for i = chosen.values_from, chosen.values_to, 2 do
      redis.call('HSETNX', tag .. 'values:' .. id, ARGV[i], ARGV[i + 1])
    end
  end
end

-- Index entries outlive the keys they speak of; each saga that ends clears away some that are over.
local function purge(tag)
  local over = redis.call('ZRANGEBYSCORE', tag .. 'expiry', '-inf', now - 1000, 'LIMIT', 0, PURGE_AT_ONCE)
  for _, id in ipairs(over) do
    if redis.call('EXISTS', tag .. 'head:' .. id) == 0 then
      for status in pairs(FINAL) do
        redis.call('ZREM', tag .. 'index:' .. status, id)
      end
    end
    redis.call('ZREM', tag .. 'expiry', id)
  end
end

local function keep(tag, id, keep_ms)
  purge(tag)
  for _, kind in ipairs({'journal:', 'head:', 'values:', 'inbox:'}) do
    redis.call('PEXPIRE', tag .. kind .. id, keep_ms)
  end
  redis.call('ZADD', tag .. 'expiry', now + keep_ms, id)
end

local function persist(tag, id)
  for _, kind in ipairs({'journal:', 'head:', 'values:', 'inbox:'}) do
    redis.call('PERSIST', tag .. kind .. id)
  end
  redis.call('ZREM', tag .. 'expiry', id)
end

-- The index follows every change of the head, so 'changed last' is one look-up and no status is listed twice.
local function change_head(head, tag, id, old_status, chosen)
  if not (chosen.status or chosen.summary) then
    return
  end
  local status = chosen.status or old_status
  if chosen.summary then
    redis.call('HSET', head, 'status', status, 'changed_ms', now, 'summary', chosen.summary)
  else
    redis.call('HSET', head, 'status', status, 'changed_ms', now)
  end
  if status ~= old_status then
    redis.call('ZREM', tag .. 'index:' .. old_status, id)
  end
  redis.call('ZADD', tag .. 'index:' .. status, now, id)
end

local function create(journal, head, n, first, last, chosen)
  local tag, id = parts(head)
  local digest = redis.call('HGET', head, 'digest')
  if digest then
    if same(journal, 0, first, last) then
      return OK + 4 * redis.call('LLEN', tag .. 'inbox:' .. id)
    end
    return digest
  end
  if chosen.owned and not alive(tag) then
    return FENCED
  end
  local status = chosen.status or 'PENDING'
  -- Leftovers of an earlier saga of this name would otherwise become part of this one.
  redis.call('DEL', journal, tag .. 'values:' .. id, tag .. 'inbox:' .. id)
  store_values(tag, id, chosen)
  push(journal, first, last)
  redis.call('HSET', head, 'status', status, 'epoch', chosen.owned and 1 or 0, 'owner', chosen.owned and owner or '',
    'digest', chosen.digest, 'created_ms', now, 'changed_ms', now, 'summary', chosen.summary or '')
  redis.call('ZADD', tag .. 'index:' .. status, now, id)
  redis.call('ZREM', tag .. 'expiry', id)
  if chosen.keep_ms then
    keep(tag, id, chosen.keep_ms)
  end
  return OK
end

local function settle(journal, head, epoch, seq, n, first, last, chosen)
  if chosen.digest then
    return create(journal, head, n, first, last, chosen)
  end
  local found = redis.call('HMGET', head, 'epoch', 'owner', 'status')
  if not found[1] then
    return MISSING
  end
  local tag, id = parts(head)
  local inbox = tag .. 'inbox:' .. id
  local waiting = redis.call('LLEN', inbox)
  if found[1] ~= epoch then
    return FENCED + 4 * waiting
  end
  local length = redis.call('LLEN', journal)
  if n > 0 and length == seq + n and same(journal, seq, first, last) then
    return OK + 4 * waiting
  end
  if n == 0 and chosen.release and found[2] == '' and length == seq then
    return OK + 4 * waiting
  end
  if found[2] ~= owner or not alive(tag) then
    return FENCED + 4 * waiting
  end
  if length ~= seq then
    return CONFLICT + 4 * waiting
  end

  if chosen ~= NOTHING then
    store_values(tag, id, chosen)
    change_head(head, tag, id, found[3], chosen)
  end
  push(journal, first, last)
  if chosen ~= NOTHING then
    if chosen.consumed then
      redis.call('LTRIM', inbox, chosen.consumed, -1)
      waiting = math.max(waiting - chosen.consumed, 0)
    end
    if chosen.release then
      redis.call('HSET', head, 'owner', '')
    end
    if chosen.release or (chosen.consumed and waiting == 0) then
      redis.call('SREM', tag .. 'wake:' .. owner, id)
    end
  end
  if chosen.keep_ms then
    keep(tag, id, chosen.keep_ms)
  elseif FINAL[found[3]] then
    persist(tag, id)
  end
  return OK + 4 * waiting
end

local reply = {now}
for k = 1, #KEYS, 2 do
  local epoch, seq, n = take(), tonumber(take()), tonumber(take())
  local chosen = options(take())
  local first = next_arg
  next_arg = next_arg + n
  reply[#reply + 1] = settle(KEYS[k], KEYS[k + 1], epoch, seq, n, first, next_arg - 1, chosen)
end
return reply
