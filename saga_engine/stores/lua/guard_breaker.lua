-- The circuit breakers of tools, as all processes see them.
--
-- KEYS  breaker ('look': any number of them)
-- ARGV  'look'
--       'trial', trial_ms, nonce
--       'outcome', 1 failed or 0, failures, open_ms, nonce
-- Reply look and outcome: failures, 1 tripped or 0, opens_ms, for each key; trial: 1 go or 0
--
-- A breaker is a hash: failures, opens_at and open_ms (only when tripped), trial_until, trial_ms and trial (only since a
-- trial was given), and 'n:<nonce>' for each failure in the row. No key: closed, no failure.
--
--   state      is                                   success    failure                              trial
--   closed     no opens_at                          closed,0   failures + 1, open at the limit      go
--   open       opens_at > now                       closed,0   not counted                          no
--   waiting    opens_at <= now, no trial given      closed,0   not counted                          go, and on trial
--   on trial   waiting, trial_until > now           closed,0   failures + 1, open for open_ms       no
--   lapsed     waiting, trial_until <= now          closed,0   failures + 1, open for open_ms       go, and on trial
--
-- LAWS
-- 1. Failures of calls that were under way when the breaker opened (and of compensations, which pass it) are not
--    counted while it is open or waits, so they cannot keep it open.
-- 2. Since a trial was given, the first failure counts as the trial's, even after its time.
-- 3. One trial at a time. One without an outcome is over after trial_ms, and another call may try.
-- 4. A failure or request for a trial that is repeated after a lost reply has its nonce and counts once. A repeated
--    success may also clear failures that came in between: the breaker only opens a little later.
-- 5. A breaker without changes for KEEP_MS after its opening is deleted.
-- 6. Nobody waits for a clock that has stepped back: an opening or a trial that would last longer than it may is over.
--    How long it may last is what was granted: another process may grant its own trials another time.

local call = redis.call
local KEEP_MS = 30 * 86400000
local now = now_ms()

-- When something ends that lasts `lasts_ms`: now, if that is further away than it lasts.
local function ending(text, lasts_ms)
  local at = text and tonumber(text)
  if at and at - now > (lasts_ms and tonumber(lasts_ms) or math.huge) then
    return now
  end
  return at
end

local function load(key)
  local found = call('HMGET', key, 'failures', 'opens_at', 'trial_until', 'trial', 'open_ms', 'trial_ms')
  return {
    failures = tonumber(found[1] or 0),
    opens_at = ending(found[2], found[5]),
    trial_until = ending(found[3], found[6]),
    trial = found[4]
  }
end

local function look(keys)
  local reply = {}
  for _, key in ipairs(keys) do
    local breaker = load(key)
    reply[#reply + 1] = breaker.failures
    reply[#reply + 1] = breaker.opens_at and 1 or 0
    reply[#reply + 1] = math.max((breaker.opens_at or now) - now, 0)
  end
  return reply
end

local function open(key, failures, open_ms, nonce)
  call('DEL', key)
  call('HSET', key, 'failures', failures, 'opens_at', now + open_ms, 'open_ms', open_ms, 'n:' .. nonce, '')
  call('PEXPIRE', key, open_ms + KEEP_MS)
end

local function fail(key, limit, open_ms, nonce)
  if call('HEXISTS', key, 'n:' .. nonce) == 1 then
    return
  end
  local breaker = load(key)
  local failures = breaker.failures + 1
  if not breaker.opens_at and failures < limit then
    call('HSET', key, 'failures', failures, 'n:' .. nonce, '')
    call('PEXPIRE', key, KEEP_MS)
  elseif not breaker.opens_at or breaker.trial_until then
    open(key, failures, open_ms, nonce)
  end
end

local function try(key, trial_ms, nonce)
  local breaker = load(key)
  if not breaker.opens_at then
    return 1
  end
  if breaker.opens_at > now then
    return 0
  end
  if breaker.trial_until and breaker.trial_until > now then
    return breaker.trial == nonce and 1 or 0
  end
  call('HSET', key, 'trial_until', now + trial_ms, 'trial_ms', trial_ms, 'trial', nonce)
  call('PEXPIRE', key, trial_ms + KEEP_MS)
  return 1
end

if ARGV[1] == 'trial' then
  return try(KEYS[1], tonumber(ARGV[2]), ARGV[3])
end
if ARGV[1] == 'outcome' then
  if ARGV[2] == '0' then
    call('DEL', KEYS[1])
  else
    fail(KEYS[1], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5])
  end
end
return look(KEYS)
