-- The beginning of every script. Time is the server's; keys are derived from a head key, so that all keys that a
-- script uses for one saga carry that saga's hash tag: <namespace>:{pNN}:head:<id>.

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- A head key, cut into its tag ('saga:{p07}:') and the id. A namespace has no brace, so the first match is the tag's.
local function parts(head)
  local at = string.find(head, '}:head:', 1, true)
  return string.sub(head, 1, at + 1), string.sub(head, at + 7)
end

-- The remaining time of a lease in milliseconds; 0 once it has ended.
local function ttl_of(tag, owner)
  if owner == '' then
    return 0
  end
  return math.max(redis.call('PTTL', tag .. 'lease:' .. owner), 0)
end

-- The latest time that was seen in a partition: any recorded time after the present was written by a wrong clock (see
-- `renew`). It is seldom written, so that it costs little; a step of the clock is corrected up to that interval.
local function seen_ms(tag, now)
  local found = redis.pcall('GET', tag .. 'clock')
  local seen = type(found) == 'string' and tonumber(found) or 0 -- a value that is not a number is overwritten
  if now > seen + 5000 then
    redis.call('SET', tag .. 'clock', now)
  end
  return seen
end

-- On a cluster the last key is one that never exists, so that the server refuses the whole script (TRYAGAIN, ASK) while
-- the keys of its slot lie in two places. No script reads it. No other key has only this after its tag.
local PUBLISH = 'PUBLISH'
do
  local last = KEYS[#KEYS]
  if last and string.sub(last, string.find(last, '}:', 1, true) or 1) == '}:absent' then
    KEYS[#KEYS] = nil
    PUBLISH = 'SPUBLISH' -- to the node of the partition alone
  end
end

-- Tell workers that listen that a partition has something for them: '' a saga that is due, or due earlier than any
-- other; else the owner of a saga, NUL and its id: it has messages. Only a hint: a worker that misses it looks later.
local hinted = {}

local function hint(tag, what)
  if not hinted[tag .. what] then
    hinted[tag .. what] = true
    redis.pcall(PUBLISH, tag .. 'hints', what)
  end
end

-- Queue a saga that nobody owns for a worker at `due_ms`.
local function wait_for_worker(tag, id, due_ms, now, call)
  if due_ms > now then
    seen_ms(tag, now)
  end
  call = call or redis.call
  call('ZADD', tag .. 'due', math.max(due_ms, now), id)
  if due_ms <= now or call('ZRANK', tag .. 'due', id) == 0 then
    hint(tag, '')
  end
end

-- Whether a field that the engine wrote as a whole number is one.
local function is_number(field)
  return field and #field < 16 and string.find(field, '^%d+$') ~= nil
end

-- The head as a flat list in the order of the client's `Head`, or false when there is no such saga. Fields that a
-- foreign writer removed are false.
local function describe(head)
  local found = redis.call('HMGET', head, 'status', 'epoch', 'owner', 'digest', 'created_ms', 'changed_ms', 'summary',
    'key')
  if not found[1] and redis.call('EXISTS', head) == 0 then
    return false
  end
  local tag, id = parts(head)
  return {
    found[1], found[2], found[3], ttl_of(tag, found[3] or ''), found[4], found[5], found[6],
    redis.call('LLEN', tag .. 'journal:' .. id), redis.call('LLEN', tag .. 'messages:' .. id), found[7] or '',
    found[8] or ''
  }
end

-- The search index of a partition is one sorted set whose members are read in lexical order:
-- term NUL created_ms (13 digits) NUL id. ASKS is the term of sagas with an open question.
local ASKS = '?'

local function posting(term, created, id)
  return term .. '\0' .. created .. '\0' .. id
end

-- Remove a saga from the search index. Its terms outlive its other keys until then.
local function forget_terms(tag, id, call)
  local terms = call('GET', tag .. 'terms:' .. id)
  if not terms then
    return
  end
  local created
  for term in string.gmatch(terms .. '\n', '(.-)\n') do
    if not created then
      created = term
      call('ZREM', tag .. 'search', posting(ASKS, created, id))
    else
      call('ZREM', tag .. 'search', posting(term, created, id))
    end
  end
  call('DEL', tag .. 'terms:' .. id)
end

-- The statuses of sagas that need no owner any more.
local FINAL = {COMPLETED = true, COMPENSATED = true, WAIVED = true}
