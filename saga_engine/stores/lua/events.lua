-- Events by name and key, and the waits for them. All keys are of one partition, which follows from name and key.
--
-- KEYS  box, kept, seen, waits, index, due
--       box   hash   e:<event> payload     s:<event> what became of it, and the wait: 'held\n<wait>'
--                    l:<event> of a late event: what its wait left for it
--                    m:<event> of an event for one wait and no other: a mark of its payload
--                    h:<wait> the event held for it     a:<wait> its about, from 'register' to 'over'
--                    holds: how many events are held, or late and not handled
--                    last, last_about: the wait that ended last without an event, and what it left
--       kept  zset   events that nothing has, by arrival
--       seen  zset   ids of all events by arrival in ms, for as long as repeats are recognised
--       waits zset   waits that have no event, by arrival
--       index zset   channels with events, by the last arrival (one key for each partition)
--       due   zset   '<channel>\n<wait>\n<event>' by the time when the saga was told (one key for each partition)
-- ARGV  verb, channel, keep_ms, then
--       'send', event, payload, most     'register', wait, about     'over', wait, taken, refused, about
--       'address', wait, event, payload, mark                        'arrived', wait, event, again_ms
--       'first'                          'look', event               'list', limit       'handled', event
--       'forget', what the names of a saga's waits begin with
-- Reply of 'send' and 'address' {1 known or 0, what became of it, wait, payload, about}
--          'register' and 'look' {event, payload} or likewise
--          'over' {the wait that has the event which it held, or whose late one it is, event}
--
-- LAWS
-- 1. An id is accepted once: a repeat changes nothing, and learns what became of the first one.
-- 2. An event is held for one wait, the one that came first, and for no other until that wait is over without it. An
--    event that is addressed to one wait is never another one's, and that wait may hold it before it is registered.
-- 3. A wait that is registered again gets the same event: its owner may have ended before it was journalled.
-- 4. Only 'over' ends what is held: the owner of the saga journals first what became of it. An event that the journal
--    has, and whose step waits for others ('arrived'), is held until then.
-- 5. An event that comes after its wait is over is late. If the wait left something for it (about), it is nobody else's.
--    The wait of which 'over' was said last counts, of those that left something if there is one; to say it again, as
--    about an event that came later, is no news.
-- 6. What is forgotten of a saga is the content of its events, not that they came: law 1 holds for their ids. A channel
--    that has nothing else is listed no more.
-- 7. A channel without waits, held events and late ones to be handled expires keep_ms after its last change; no other.

local call = redis.call
local TRIM_AT_ONCE = 100

local box, kept, seen, waits, index, due = unpack(KEYS)
local verb, channel, keep_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local now = now_ms()

local function member(wait, event)
  return channel .. '\n' .. wait .. '\n' .. event
end

local function became(event, what)
  call('HSET', box, 's:' .. event, what)
end

-- What became of an event: its word, and the wait.
local function state_of(event)
  local found = call('HGET', box, 's:' .. event)
  if not found then
    return nil
  end
  local cut = string.find(found, '\n', 1, true)
  return cut and string.sub(found, 1, cut - 1) or found, cut and string.sub(found, cut + 1) or ''
end

local function hold(event, wait)
  call('HSET', box, 'h:' .. wait, event)
  call('HINCRBY', box, 'holds', 1)
  became(event, 'held\n' .. wait)
  call('ZREM', kept, event)
  call('ZREM', waits, wait)
  call('ZADD', due, now, member(wait, event))
end

-- The event of a wait that is over, which left something for it, or nothing: then nothing is done about it.
local function too_late(event, wait, about)
  became(event, 'late\n' .. wait)
  if about ~= '' then
    call('HSET', box, 'l:' .. event, about)
    call('HINCRBY', box, 'holds', 1)
    call('ZADD', due, now, member(wait, event))
  end
end

-- An event that nothing has: for the wait that came first, late, or kept. Returns the wait that has it now.
local function give(event)
  local wait = call('ZRANGE', waits, 0, 0)[1]
  if wait then
    hold(event, wait)
    return wait
  end
  local last, about = unpack(call('HMGET', box, 'last', 'last_about'))
  if last and about ~= '' then
    too_late(event, last, about)
    return nil
  end
  became(event, last and 'late\n' .. last or 'kept')
  call('ZADD', kept, tonumber(call('ZSCORE', seen, event) or now), event)
  return nil
end

-- A late event was handled, or its wait took it after all.
local function drop(event)
  if call('HDEL', box, 'l:' .. event) == 1 then
    call('HINCRBY', box, 'holds', -1)
  end
  call('HDEL', box, 'e:' .. event)
  call('ZREM', kept, event)
end

local function let_go(event, wait)
  if call('HGET', box, 'h:' .. wait) == event then
    call('HDEL', box, 'h:' .. wait)
    call('HINCRBY', box, 'holds', -1)
  end
  call('ZREM', due, member(wait, event))
end

local function expire()
  local open = call('ZCARD', waits) > 0 or tonumber(call('HGET', box, 'holds') or 0) > 0
  for _, key in ipairs({box, kept, seen, waits}) do
    if open then
      call('PERSIST', key)
    else
      call('PEXPIRE', key, keep_ms)
    end
  end
end

local function trim()
  for _, event in ipairs(call('ZRANGEBYSCORE', seen, '-inf', now - keep_ms, 'LIMIT', 0, TRIM_AT_ONCE)) do
    if state_of(event) ~= 'held' and call('HEXISTS', box, 'l:' .. event) == 0 then
      call('HDEL', box, 'e:' .. event, 's:' .. event, 'm:' .. event)
      call('ZREM', kept, event)
      call('ZREM', seen, event)
    end
  end
  for _, name in ipairs(call('ZRANGEBYSCORE', index, '-inf', now - keep_ms, 'LIMIT', 0, TRIM_AT_ONCE)) do
    call('ZREM', index, name)
  end
end

local function receipt(known, event)
  local word, wait = state_of(event)
  local payload, about = unpack(call('HMGET', box, 'e:' .. event, 'l:' .. event))
  return {known, word, wait, payload or '', about or ''}
end

local function accept(event, payload)
  call('HSET', box, 'e:' .. event, payload)
  -- Two of one millisecond keep their order.
  local last = call('ZREVRANGE', seen, 0, 0, 'WITHSCORES')
  call('ZADD', seen, math.max(now, (tonumber(last[2]) or 0) + 0.001), event)
  call('ZADD', index, now, channel)
end

local verbs = {}

function verbs.send()
  local event, payload, most = ARGV[4], ARGV[5], tonumber(ARGV[6])
  trim()
  if state_of(event) then
    return receipt(1, event)
  end
  if call('ZCARD', kept) >= most and call('ZCARD', waits) == 0 then
    return {0, 'full', '', '', ''}
  end
  accept(event, payload)
  give(event)
  expire()
  return receipt(0, event)
end

function verbs.address()
  local wait, event, payload, mark = ARGV[4], ARGV[5], ARGV[6], ARGV[7]
  trim()
  local known = state_of(event)
  if known and call('HGET', box, 'm:' .. event) == mark then
    return receipt(1, event)
  end
  if known or call('HEXISTS', box, 'h:' .. wait) == 1 then
    return {known and 1 or 0, 'occupied', wait, '', ''}
  end
  accept(event, payload)
  call('HSET', box, 'm:' .. event, mark)
  hold(event, wait)
  expire()
  return receipt(0, event)
end

function verbs.register()
  local wait, about = ARGV[4], ARGV[5]
  local event = call('HGET', box, 'h:' .. wait)
  call('HSET', box, 'a:' .. wait, about)
  if not event then
    event = call('ZRANGE', kept, 0, 0)[1]
    if event then
      hold(event, wait)
    elseif not call('ZSCORE', waits, wait) then
      local last = call('ZREVRANGE', waits, 0, 0, 'WITHSCORES')
      call('ZADD', waits, math.max(now, (tonumber(last[2]) or 0) + 0.001), wait)
    end
  end
  expire()
  return event and {event, call('HGET', box, 'e:' .. event) or ''} or {}
end

function verbs.over()
  local wait, taken, refused, about = ARGV[4], ARGV[5], ARGV[6], ARGV[7]
  local event = call('HGET', box, 'h:' .. wait)
  local again = {}
  for _, pair in ipairs({{taken, 'taken\n'}, {refused, 'refused\n'}}) do
    local known, by = state_of(pair[1])
    if pair[1] ~= '' and (known == 'held' or known == 'late') and by == wait then
      became(pair[1], pair[2] .. wait)
      drop(pair[1])
      let_go(pair[1], wait)
    end
  end
  if refused == '' then
    call('ZREM', waits, wait)
    if call('HDEL', box, 'a:' .. wait) == 1 then
      if taken == '' then
        -- What one wait left for late events, another that leaves nothing does not take away.
        if about ~= '' or (call('HGET', box, 'last_about') or '') == '' then
          call('HSET', box, 'last', wait, 'last_about', about)
        end
      else
        call('HDEL', box, 'last', 'last_about')
      end
    end
    if event and event ~= taken then
      let_go(event, wait)
      if call('HEXISTS', box, 'm:' .. event) == 1 then
        too_late(event, wait, about)
      else
        give(event)
      end
      local word, theirs = state_of(event)
      if word == 'held' or call('HEXISTS', box, 'l:' .. event) == 1 then
        again = {theirs, event}
      end
    end
  end
  expire()
  return again
end

-- The journal has an event of a wait for several: it stays held, and is due again later.
function verbs.arrived()
  local wait, event, again_ms = ARGV[4], ARGV[5], tonumber(ARGV[6])
  if call('HGET', box, 'h:' .. wait) == event then
    call('ZADD', due, now + again_ms, member(wait, event))
  end
  expire()
end

function verbs.handled()
  local event = ARGV[4]
  local known, wait = state_of(event)
  if known == 'late' then
    became(event, 'handled\n' .. wait)
    drop(event)
    call('ZREM', due, member(wait, event))
  end
  expire()
end

function verbs.forget()
  local begins = ARGV[4]
  local function theirs(wait)
    return wait and string.sub(wait, 1, #begins) == begins
  end
  local others = call('ZCARD', waits) > 0
  for _, event in ipairs(call('ZRANGE', seen, 0, -1)) do
    local word, wait = state_of(event)
    if theirs(wait) and word ~= 'held' then
      drop(event)
      call('HDEL', box, 'm:' .. event)
      call('ZREM', due, member(wait, event))
    else
      others = true
    end
  end
  if theirs(call('HGET', box, 'last')) then
    call('HSET', box, 'last_about', '')
  end
  if not others then
    call('ZREM', index, channel)
  end
  expire()
end

function verbs.first()
  local wait = call('ZRANGE', waits, 0, 0)[1]
  return wait and call('HGET', box, 'a:' .. wait) or false
end

function verbs.look()
  return state_of(ARGV[4]) and receipt(1, ARGV[4]) or {}
end

function verbs.list()
  local found = {}
  for _, event in ipairs(call('ZREVRANGE', seen, 0, tonumber(ARGV[4]) - 1)) do
    local word, wait, payload = unpack(receipt(1, event), 2)
    local at = math.floor(tonumber(call('ZSCORE', seen, event)))
    for _, item in ipairs({event, at, word or '', wait or '', payload or ''}) do
      found[#found + 1] = item
    end
  end
  return found
end

return verbs[verb]()
