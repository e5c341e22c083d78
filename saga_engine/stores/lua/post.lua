-- Post a message to a saga and wake its owner. Replies the head as it then is, or false for no such saga.
--
-- KEYS  head
-- ARGV  message, how long its sender may take to act on it before a worker does (ms; see law 4)
--
-- LAWS
-- 1. The same bytes never wait twice: a post that is repeated after a lost reply changes nothing. (A message carries an
--    id of its own, so equal bytes are the same message.)
-- 2. The messages of a finished saga expire with it.
-- 3. The number of messages is limited: each post reads them, and the owner takes all at once. Replies 0 at the limit.
-- 4. A process that posts to a saga without an owner takes the saga over. If it dies first, a worker comes after a
--    while: the poster goes first, because it has the tools and waits for the outcome.
-- 5. A message whose id is a key of its sender is posted once, also after the owner has read it: who asks again after a
--    lost answer, or through another server at the same time, changes nothing. Keys are known for two days.

local MOST_WAITING = 1000
local KEYS_KNOWN_MS = 2 * 24 * 3600 * 1000

local head, message = KEYS[1], ARGV[1]
local owner, status = unpack(redis.call('HMGET', head, 'owner', 'status'))
if not owner then
  return false
end
local tag, id = parts(head)
local messages = tag .. 'messages:' .. id
local waiting = false
local present = redis.call('LRANGE', messages, 0, -1)
for _, other in ipairs(present) do
  waiting = waiting or other == message
end
local posted, key = tag .. 'posted:' .. id, string.match(message, '^{"id":"(key%-%x+)"')
if key and redis.call('SISMEMBER', posted, key) == 1 then
  waiting = true
end
if not waiting and #present >= MOST_WAITING then
  return 0
end
if not waiting then
  redis.call('HSET', head, 'messages', '1')
  redis.call('RPUSH', messages, message)
  if key then
    redis.call('SADD', posted, key)
    redis.call('PEXPIRE', posted, KEYS_KNOWN_MS)
  end
  local ttl = redis.call('PTTL', head)
  if ttl > 0 then
    redis.call('PEXPIRE', messages, ttl)
  end
end
if owner ~= '' then
  redis.call('SADD', tag .. 'wake:' .. owner, id)
  hint(tag, owner .. '\0' .. id)
end
if ttl_of(tag, owner) == 0 and not FINAL[status] then
  local now = now_ms()
  local soon = now + tonumber(ARGV[2])
  local due = redis.call('ZSCORE', tag .. 'due', id)
  if not due or tonumber(due) > soon then
    wait_for_worker(tag, id, soon, now)
  end
end
return describe(head)
