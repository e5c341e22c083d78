-- Group commit. Every entry succeeds or fails by itself; an entry that is not 'ok' changed nothing.
--
-- KEYS  journal and head of each entry, in turn
-- ARGV  owner, then for each entry: epoch, seq, n, flags, the arguments of the flags in the order below, n records
--       c creation: digest      o creation owned by `owner`      f creation for workers: room in the queue
--       w the wrapped key of a new saga, if its records are sealed
--       v values: count, then digest and bytes of each
--       s status                m summary                        r release
--       i consumed messages     k keep_ms                        d due_ms
--       t search terms: count, then each                         q 1: a question is open, 0: none is
-- Reply the time in ms (negative: a key of the partition has a wrong type and needs mending, see `mend`), then one item
--       for each entry: code + 8 * waiting messages, or the digest of the saga that exists, or '!' and the saga whose
--       effects the id is reserved for (see `reserve`)
--       0 ok   1 fenced   2 conflict   3 missing   4 ok and nobody owns it any more   5 full
--       {text}: the keys of this saga are damaged, so that it can be neither read nor written
--       and at the end the version of the operator's stops, if there ever was one (see `stop`)
--
-- LAWS
-- 1. An append that is already there, repeated under the same epoch, is 'ok' and nothing is applied a second time.
--    The epoch decides, not the owner: the first application may have released the saga.
-- 2. The epoch is the fence. The owner's lease must be valid as well, so an owner that slept past the end of its lease
--    cannot write even if nobody has taken over yet; the server's clock decides.
-- 3. All checks of an entry come before its first write, but for the length of its journal: that is what the push
--    replies, and records that do not continue the journal are taken back in the same script. The journal is written
--    before the actions that a repeat must not do twice (trim the messages, clear the owner), and large values before
--    the journal that names them, so a command that the server refuses half-way loses nothing.
-- 4. A live saga has no TTL. Only a final status sets one, and any later append removes it again.
-- 5. A saga with messages is not released, unless it has ended: its owner reads the messages first. A process that
--    posts to a saga without an owner takes it over, so every message has a reader.
-- 6. A saga with work left that nobody owns is in `due`, by the time when it needs a worker; an owned saga is not.
-- 7. A key of the partition that a foreign writer damaged does not prevent an append: its content is in the heads, from
--    which it is rebuilt.
--
-- An entry without flags, the common case, costs two calls: its head and one push. The head says whether there are
-- messages (`messages`), large values (`values`) or counts of the policy (`tally`) to read. Changes to sorted sets are
-- gathered, because many entries of a partition change the same ones, and written at the end, also if an entry fails.
-- tests/stores/test_script_calls.py holds the calls of each kind of entry.

local call = redis.call
local OK, FENCED, CONFLICT, MISSING, RELEASED, FULL = 0, 1, 2, 3, 4, 5
local NO_HEAD = {'DAMAGED the head of the saga lacks fields'}
local KINDS = {'journal:', 'head:', 'values:', 'messages:', 'tally:'}
local ALWAYS_THERE = 2
local NOTHING = {}
local PURGE_AT_ONCE = 64
-- Lua's stack limits the number of values that one call can take.
local PUSH_AT_ONCE = 1000

local owner = ARGV[1]
local now = now_ms()
local NOW_TEXT = string.format('%013d', now)
local leases = {}
local next_arg = 2

local partition_damaged = false

-- A command on a key of the partition, which many sagas share.
local function shared(...)
  local found = redis.pcall(...)
  if type(found) == 'table' and found.err then
    if not string.find(found.err, 'WRONGTYPE', 1, true) then
      error(found, 0)
    end
    partition_damaged = true
    return nil
  end
  return found
end

local function take()
  local value = ARGV[next_arg]
  next_arg = next_arg + 1
  return value
end

local C, O, F, W, V, S, M, R, I, K, D, T, Q = string.byte('cofwvsmrikdtq', 1, -1)

local function options(flags)
  if flags == '' then
    return NOTHING
  end
  local chosen = {}
  for at = 1, #flags do
    local flag = string.byte(flags, at)
    if flag == S then chosen.status = take()
    elseif flag == M then chosen.summary = take()
    elseif flag == C then chosen.digest = take()
    elseif flag == O then chosen.owned = true
    elseif flag == R then chosen.release = true
    elseif flag == K then chosen.keep_ms = tonumber(take())
    elseif flag == D then chosen.due_ms = tonumber(take())
    elseif flag == I then chosen.consumed = tonumber(take())
    elseif flag == F then chosen.room = tonumber(take())
    elseif flag == W then chosen.key = take()
    elseif flag == Q then chosen.asks = take() == '1'
    elseif flag == T then
      local count = tonumber(take())
      chosen.terms_from, chosen.terms_to = next_arg, next_arg + count - 1
      next_arg = next_arg + count
    elseif flag == V then
      local count = tonumber(take())
      chosen.values_from, chosen.values_to = next_arg, next_arg + 2 * count - 1
      next_arg = next_arg + 2 * count
    end
  end
  return chosen
end

-- One lookup per partition and call: time stands still inside a script.
local function alive(tag)
  local known = leases[tag]
  if known == nil then
    known = ttl_of(tag, owner) > 0
    leases[tag] = known
  end
  return known
end

local function same(journal, seq, first, last)
  local there = call('LRANGE', journal, seq, seq + last - first)
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

-- Add records, at least one; returns the length that the journal had.
local function push(journal, first, last)
  local length
  for from = first, last, PUSH_AT_ONCE do
    length = call('RPUSH', journal, unpack(ARGV, from, math.min(from + PUSH_AT_ONCE - 1, last)))
  end
  return length - (last - first + 1)
end

local function store_values(tag, id, chosen)
  if chosen.values_from then
    for i = chosen.values_from, chosen.values_to, 2 do
      call('HSETNX', tag .. 'values:' .. id, ARGV[i], ARGV[i + 1])
    end
  end
end

-- The pending writes to the sorted sets: for each key the score of each id, false for 'remove'.
local scores = {}
-- The postings of new sagas, by the key of their index, as the arguments of a ZADD: nothing else writes the same ones.
local postings = {}

local function score(key, id, value)
  local of_key = scores[key]
  if of_key == nil then
    of_key = {}
    scores[key] = of_key
  end
  of_key[id] = value
end

local function in_pieces(command, key, values)
  for from = 1, #values, PUSH_AT_ONCE do
    shared(command, key, unpack(values, from, math.min(from + PUSH_AT_ONCE - 1, #values)))
  end
end

local function write_scores()
  for key, of_key in pairs(postings) do
    in_pieces('ZADD', key, of_key)
  end
  for key, of_key in pairs(scores) do
    local there, gone = {}, {}
    for id, value in pairs(of_key) do
      if value then
        there[#there + 1], there[#there + 2] = value, id
      else
        gone[#gone + 1] = id
      end
    end
    in_pieces('ZADD', key, there)
    in_pieces('ZREM', key, gone)
  end
end

-- The terms by which a saga is found: those of its search key, and in the search index.
local function add_terms(tag, id, created, chosen)
  local known = (call('GET', tag .. 'terms:' .. id) or created) .. '\n'
  local more = {}
  for i = chosen.terms_from, chosen.terms_to do
    if not string.find(known, '\n' .. ARGV[i] .. '\n', 1, true) then
      more[#more + 1] = ARGV[i]
      score(tag .. 'search', posting(ARGV[i], created, id), 0)
    end
  end
  if #more > 0 then
    call('SET', tag .. 'terms:' .. id, known .. table.concat(more, '\n'))
  end
end

-- Those of a new saga: there are none yet to compare with, and none of an earlier saga with this name.
local function set_terms(tag, id, key, created, chosen)
  local search, after = tag .. 'search', '\0' .. created .. '\0' .. id
  local of_key = postings[search]
  if of_key == nil then
    of_key = {}
    postings[search] = of_key
  end
  local n = #of_key
  for i = chosen.terms_from, chosen.terms_to do
    of_key[n + 1], of_key[n + 2] = 0, ARGV[i] .. after
    n = n + 2
  end
  call('SET', key, created .. '\n' .. table.concat(ARGV, '\n', chosen.terms_from, chosen.terms_to))
end

-- Index entries outlive their keys; each saga that ends removes some expired ones.
local function purge(tag)
  local over = shared('ZRANGEBYSCORE', tag .. 'expiry', '-inf', now - 1000, 'LIMIT', 0, PURGE_AT_ONCE)
  for _, id in ipairs(over or {}) do
    if call('EXISTS', tag .. 'head:' .. id) == 0 then
      for status in pairs(FINAL) do
        shared('ZREM', tag .. 'index:' .. status, id)
      end
      forget_terms(tag, id, shared)
    end
    call('ZREM', tag .. 'expiry', id)
  end
end

local purged = {}

local function keep(tag, id, keep_ms, more)
  if not purged[tag] then
    purged[tag] = true
    purge(tag)
  end
  for k = 1, more and #KINDS or ALWAYS_THERE do
    call('PEXPIRE', tag .. KINDS[k] .. id, keep_ms)
  end
  score(tag .. 'expiry', id, now + keep_ms)
end

local function persist(tag, id)
  for _, kind in ipairs(KINDS) do
    call('PERSIST', tag .. kind .. id)
  end
  score(tag .. 'expiry', id, false)
end

-- The index follows every change of the head, so the last changed saga is one lookup and no saga has two statuses.
local function change_head(head, tag, id, old_status, chosen, released)
  local fields = {}
  if chosen.status or chosen.summary then
    fields = {'changed_ms', now}
    if chosen.status and chosen.status ~= old_status then
      fields[#fields + 1], fields[#fields + 2] = 'status', chosen.status
      score(tag .. 'index:' .. old_status, id, false)
    end
    if chosen.summary then
      fields[#fields + 1], fields[#fields + 2] = 'summary', chosen.summary
    end
    score(tag .. 'index:' .. (chosen.status or old_status), id, now)
  end
  if released then
    fields[#fields + 1], fields[#fields + 2] = 'owner', ''
  end
  if #fields > 0 then
    call('HSET', head, unpack(fields))
  end
end

-- What a head that is there says to the creation of a saga with its id; nil: there is no head, but something else.
local function known(tag, id, journal, head, first, last)
  local found = call('HMGET', head, 'digest', 'owner')
  if found[1] then
    if same(journal, 0, first, last) then
      return (found[2] == '' and RELEASED or OK) + 8 * call('LLEN', tag .. 'messages:' .. id)
    end
    return found[1]
  end
end

local function create(journal, head, first, last, chosen)
  local tag, id = parts(head)
  local values, messages, tally = tag .. 'values:' .. id, tag .. 'messages:' .. id, tag .. 'tally:' .. id
  local reserved, terms = tag .. 'reserved:' .. id, tag .. 'terms:' .. id
  -- Almost always nothing has this name.
  local there = call('EXISTS', head, journal, values, messages, tally, reserved, terms) > 0
  local code = there and known(tag, id, journal, head, first, last)
  if code then
    return code
  end
  if chosen.owned and not alive(tag) then
    return FENCED
  end
  if chosen.room and (shared('ZCOUNT', tag .. 'due', '-inf', now) or 0) >= chosen.room then
    return FULL
  end
  if there then
    local for_whom = call('HMGET', reserved, 'digest', 'of')
    if for_whom[1] and for_whom[1] ~= chosen.digest then
      return '!' .. (for_whom[2] or '')
    end
    -- Otherwise leftovers of an earlier saga with this name would become part of this one.
    call('DEL', journal, values, messages, tally, reserved)
    forget_terms(tag, id, shared)
  end
  local status = chosen.status or 'PENDING'
  -- A saga may have ended by its first write: even its first step could not be called.
  local holder = chosen.owned and not chosen.release and owner or ''
  store_values(tag, id, chosen)
  push(journal, first, last)
  local fields = {'status', status, 'epoch', chosen.owned and 1 or 0, 'owner', holder, 'digest', chosen.digest,
    'created_ms', now, 'changed_ms', now, 'summary', chosen.summary or ''}
  if chosen.values_from then
    fields[#fields + 1], fields[#fields + 2] = 'values', '1'
  end
  if chosen.key then
    fields[#fields + 1], fields[#fields + 2] = 'key', chosen.key
  end
  call('HSET', head, unpack(fields))
  score(tag .. 'index:' .. status, id, now)
  if chosen.terms_from then
    set_terms(tag, id, terms, NOW_TEXT, chosen)
    if chosen.asks then
      score(tag .. 'search', posting(ASKS, NOW_TEXT, id), 0)
    end
  end
  if chosen.keep_ms then
    keep(tag, id, chosen.keep_ms, chosen.values_from)
  end
  if holder == '' and chosen.due_ms then
    wait_for_worker(tag, id, chosen.due_ms, now, shared)
  end
  return holder == '' and RELEASED or OK
end

local function settle(journal, head, epoch, seq, n, first, last, chosen)
  if chosen.digest then
    return create(journal, head, first, last, chosen)
  end
  local found = call('HMGET', head, 'epoch', 'owner', 'status', 'messages', 'values', 'tally')
  if not found[1] then
    return call('EXISTS', head) == 0 and MISSING or NO_HEAD
  end
  if not (found[2] and found[3]) then
    return NO_HEAD
  end
  local tag, id = parts(head)
  local waiting = found[4] and call('LLEN', tag .. 'messages:' .. id) or 0
  if found[1] ~= epoch then
    return FENCED + 8 * waiting
  end
  local ours = found[2] == owner and alive(tag)
  local pushes = ours and n > 0 and not chosen.values_from
  local length
  if pushes then
    length = push(journal, first, last)
    if length ~= seq then
      call('LTRIM', journal, 0, -n - 1)
    end
  else
    length = call('LLEN', journal)
  end
  if length ~= seq or n == 0 then
    -- A repeat? The first application may have released the saga.
    local there = length == seq + n and (n > 0 and same(journal, seq, first, last) or n == 0 and found[2] == '')
    if there then
      return (found[2] == '' and RELEASED or OK) + 8 * waiting
    end
  end
  if not ours then
    return FENCED + 8 * waiting
  end
  if length ~= seq then
    return CONFLICT + 8 * waiting
  end
  if chosen == NOTHING and not FINAL[found[3]] then
    return OK + 8 * waiting
  end

  if chosen.values_from then
    if not found[5] then
      call('HSET', head, 'values', '1')
    end
    store_values(tag, id, chosen)
    if n > 0 then
      push(journal, first, last)
    end
  end
  if chosen.consumed then
    call('LTRIM', tag .. 'messages:' .. id, chosen.consumed, -1)
    waiting = math.max(waiting - chosen.consumed, 0)
    if waiting == 0 then
      shared('SREM', tag .. 'wake:' .. owner, id)
      call('HDEL', head, 'messages')
    end
  end
  local released = chosen.release and (waiting == 0 or FINAL[chosen.status or found[3]])
  if released and waiting > 0 then
    shared('SREM', tag .. 'wake:' .. owner, id)
  end
  if chosen.terms_from or chosen.asks ~= nil then
    local created = call('HGET', head, 'created_ms')
    created = created and string.format('%013d', tonumber(created) or 0) or ''
    if chosen.terms_from then
      add_terms(tag, id, created, chosen)
    end
    if chosen.asks ~= nil then
      score(tag .. 'search', posting(ASKS, created, id), chosen.asks and 0)
    end
  end
  change_head(head, tag, id, found[3], chosen, released)
  if released and chosen.due_ms then
    wait_for_worker(tag, id, chosen.due_ms, now, shared)
  end
  if chosen.keep_ms then
    keep(tag, id, chosen.keep_ms, found[5] or found[6] or chosen.values_from or waiting > 0)
  elseif FINAL[found[3]] then
    persist(tag, id)
  end
  return (released and RELEASED or OK) + 8 * waiting
end

local reply = {now}
for k = 1, #KEYS, 2 do
  local epoch, seq, n = take(), tonumber(take()), tonumber(take())
  local chosen = options(take())
  local first = next_arg
  next_arg = next_arg + n
  local went, code = pcall(settle, KEYS[k], KEYS[k + 1], epoch, seq, n, first, next_arg - 1, chosen)
  if not went then
    local text = type(code) == 'table' and code.err or tostring(code)
    if not string.find(text, 'WRONGTYPE', 1, true) then
      write_scores()
      error(code, 0)
    end
    code = {text} -- a foreign writer damaged this saga, and no other
  end
  reply[#reply + 1] = code
end
write_scores()
if partition_damaged then
  reply[1] = -now
end
local stops = 0
for tag in pairs(leases) do
  local version = redis.pcall('HGET', tag .. 'stops', '#')
  stops = math.max(stops, type(version) == 'string' and tonumber(version) or 0)
end
if stops > 0 then
  reply[#reply + 1] = stops
end
return reply
