-- The de-duplication of a tool's calls: who claimed or made a call, its result, and who relies on that.
--
-- KEYS  the owner's record (<tag>owner:<owner>), and for claim and remember the entry (<tag>dedupe:<digest>)
-- ARGV  verb and its arguments
--       claim      owner, digest, ttl_ms, nonce    {'new'} {'ours'} {'busy', holder} {'done', holder, result, age_ms}
--       remember   owner, digest, ttl_ms, result   1 written, 0 not ours to write
--       forget     owner                           {who relies on it...}; an empty list: dropped
--       recollect  owner                           result or false
--       unrely     owner, relying                  0
--
-- An entry is a hash (owner, nonce, done_ms, result) with the time-to-live of the de-duplication. A record is a hash
-- with a field 'm:<digest>' for each call that its owner claimed and 'by:<owner>' for each other owner that got its
-- result.
--
-- LAWS
-- 1. An entry belongs to one owner at a time; only that owner changes it, and only for a call that it has claimed and
--    not forgotten since. So a late 'remember' cannot restore an entry whose effect is being undone.
-- 2. Nobody gets another owner's result without an entry in the maker's record, made in the same script. That entry
--    stays until 'unrely', even after the result itself has expired.
-- 3. A record lives for KEEP_MS longer than any entry it refers to, and its life is never shortened.
-- 4. A result that others rely on is not dropped.
-- 5. A claim that is repeated after a lost reply has the nonce of the first, and gets the same answer. Any other claim
--    of the same owner is 'ours': a call may have been made in between.
-- 6. The age of a result counts from the first 'remember'; its time-to-live from the last.

local call = redis.call
local KEEP_MS = 30 * 86400000

local verb, owner = ARGV[1], ARGV[2]
local record, entry = KEYS[1], KEYS[2]
-- Neither a namespace nor the name of a tool has a brace, so the first match ends the tag.
local tag = string.sub(record, 1, string.find(record, '}:', 1, true) + 1)

local function touch(key, ttl_ms)
  if call('PTTL', key) < ttl_ms + KEEP_MS then
    call('PEXPIRE', key, ttl_ms + KEEP_MS)
  end
end

-- The rest of the names of the record's fields that begin with `prefix`.
local function listed(prefix)
  local found = {}
  for _, field in ipairs(call('HKEYS', record)) do
    if string.sub(field, 1, #prefix) == prefix then
      found[#found + 1] = string.sub(field, #prefix + 1)
    end
  end
  return found
end

local function claim(digest, ttl_ms, nonce)
  local found = call('HMGET', entry, 'owner', 'done_ms', 'nonce')
  local holder, done_ms = found[1], found[2]
  if holder and holder ~= owner and not done_ms then
    return {'busy', holder}
  end
  if done_ms then
    if holder ~= owner then
      local makers = tag .. 'owner:' .. holder
      call('HSET', makers, 'm:' .. digest, '', 'by:' .. owner, '')
      touch(makers, math.max(call('PTTL', entry), 0))
    end
    return {'done', holder, call('HGET', entry, 'result'), math.max(now_ms() - done_ms, 0)}
  end
  call('HSET', record, 'm:' .. digest, '')
  touch(record, ttl_ms)
  local code = 'new'
  if not holder then
    call('HSET', entry, 'owner', owner, 'nonce', nonce)
  elseif found[3] ~= nonce then
    call('HDEL', entry, 'nonce')
    code = 'ours'
  end
  call('PEXPIRE', entry, ttl_ms)
  return {code}
end

local function remember(digest, ttl_ms, result)
  local holder = call('HGET', entry, 'owner')
  if (holder and holder ~= owner) or call('HEXISTS', record, 'm:' .. digest) == 0 then
    return 0
  end
  touch(record, ttl_ms)
  call('HSET', entry, 'owner', owner, 'result', result)
  call('HSETNX', entry, 'done_ms', now_ms())
  call('PEXPIRE', entry, ttl_ms)
  return 1
end

local function forget()
  local relying = listed('by:')
  if #relying > 0 then
    return relying
  end
  for _, digest in ipairs(listed('m:')) do
    local claimed = tag .. 'dedupe:' .. digest
    if call('HGET', claimed, 'owner') == owner then
      call('DEL', claimed)
    end
  end
  call('DEL', record)
  return relying
end

-- One owner makes one call; if it made several, the last one counts.
local function recollect()
  local last, last_ms = false, -1
  for _, digest in ipairs(listed('m:')) do
    local found = call('HMGET', tag .. 'dedupe:' .. digest, 'owner', 'done_ms')
    if found[1] == owner and found[2] and tonumber(found[2]) > last_ms then
      last, last_ms = tag .. 'dedupe:' .. digest, tonumber(found[2])
    end
  end
  return last and call('HGET', last, 'result')
end

if verb == 'claim' then
  return claim(ARGV[3], tonumber(ARGV[4]), ARGV[5])
elseif verb == 'remember' then
  return remember(ARGV[3], tonumber(ARGV[4]), ARGV[5])
elseif verb == 'forget' then
  return forget()
elseif verb == 'recollect' then
  return recollect()
end
call('HDEL', record, 'by:' .. ARGV[3])
return 0
