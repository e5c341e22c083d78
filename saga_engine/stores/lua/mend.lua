-- Keys of a partition that have a wrong type, because of a foreign writer: they are set aside, and their content is
-- rebuilt from the heads.
--
-- KEYS  the owners of partitions ('rebuild': of one; 'terms': the head of a saga)
-- ARGV  'look', status...                 finds them
--       'aside', status...                renames them
--       'mark'                            marks them as unfinished: the next process that mends rebuilds them
--       'rebuild', cursor, how many keys to read
--       'terms', term...                  gives a saga its terms again, of which it may have some
-- Reply mark, terms: nothing; look and aside: a flat list of word and key: 'wrong' of a wrong type (look: still there, aside: there no more),
--       'aside' a key that was set aside recently, 'unfinished' a partition that is to be rebuilt; rebuild: the
--       next cursor, and the ids of sagas that have lost their terms
--
-- LAWS
-- 1. Nothing is thrown away: the damaged key is kept as <tag>damaged:<name> for 30 days.
-- 2. The process that sets a key aside rebuilds it, and if it dies another one does: `mending` exists until that is
--    done.
-- 3. Rebuilding only adds, so it may be repeated, and the partition may be used meanwhile. A saga that lost its
--    time in `due` is due now; its next owner knows the real time.
-- 4. Every saga has the term ANY from its creation on. Terms without it are those that the saga got after it had lost
--    the others. What the terms were follows from its journal, which no script can read.

local call = redis.call
local KEPT_MS = 30 * 86400000
local ANY = '*'

local function type_of(key)
  return call('TYPE', key).ok
end

-- Each key of a partition except those of sagas, with its type.
local function each_key(tag, look_at)
  for _, name in ipairs({'due', 'expiry', 'search'}) do
    look_at(name, 'zset')
  end
  for i = 2, #ARGV do
    look_at('index:' .. ARGV[i], 'zset')
  end
  look_at('owners', 'set')
  local owners = redis.pcall('SMEMBERS', tag .. 'owners')
  for _, owner in ipairs(owners) do -- (an error has none)
    look_at('wake:' .. owner, 'set')
    look_at('taken:' .. owner, 'list')
    look_at('report:' .. owner, 'string')
  end
end

local function survey(aside)
  local reply = {}
  for _, key in ipairs(KEYS) do
    local tag = string.sub(key, 1, -7)
    each_key(tag, function(name, wanted)
      local is = type_of(tag .. name)
      if is ~= wanted and is ~= 'none' then
        reply[#reply + 1], reply[#reply + 2] = 'wrong', tag .. name
        if aside then
          call('RENAME', tag .. name, tag .. 'damaged:' .. name)
          call('PEXPIRE', tag .. 'damaged:' .. name, KEPT_MS)
          call('SET', tag .. 'mending', '1')
        end
      end
      if call('EXISTS', tag .. 'damaged:' .. name) == 1 then
        reply[#reply + 1], reply[#reply + 2] = 'aside', tag .. 'damaged:' .. name
      end
    end)
    if call('EXISTS', tag .. 'mending') == 1 then
      reply[#reply + 1], reply[#reply + 2] = 'unfinished', key
    end
  end
  return reply
end

local function add_head(tag, id, now)
  local head = tag .. 'head:' .. id
  local found = redis.pcall('HMGET', head, 'status', 'owner', 'changed_ms', 'idle', 'messages')
  local status, owner = found[1], found[2] -- (an error has no fields)
  if not (status and owner) then
    return
  end
  call('ZADD', tag .. 'index:' .. status, 'NX', tonumber(found[3] or now) or now, id)
  if FINAL[status] then
    local ttl = call('PTTL', head)
    if ttl > 0 then
      call('ZADD', tag .. 'expiry', 'NX', now + ttl, id)
    end
  elseif owner == '' then
    if not found[4] then
      call('ZADD', tag .. 'due', 'NX', now, id)
    end
  else
    call('SADD', tag .. 'owners', owner)
    if found[5] then
      call('SADD', tag .. 'wake:' .. owner, id)
    end
  end
end

-- What a saga's head says about open questions is JSON, which another program may have damaged.
local function asks(tag, id)
  local summary = redis.pcall('HGET', tag .. 'head:' .. id, 'summary')
  local went, found = pcall(cjson.decode, type(summary) == 'string' and summary or '{}')
  return went and type(found) == 'table' and type(found.questions) == 'table' and #found.questions > 0
end

local function add_postings(tag, id)
  local created
  local terms = redis.pcall('GET', tag .. 'terms:' .. id)
  for term in string.gmatch(type(terms) == 'string' and terms .. '\n' or '', '(.-)\n') do
    if created then
      call('ZADD', tag .. 'search', 0, posting(term, created, id))
    end
    created = created or term
  end
  if created and asks(tag, id) then
    call('ZADD', tag .. 'search', 0, posting(ASKS, created, id))
  end
end

local function lacks_terms(tag, id)
  local terms = redis.pcall('GET', tag .. 'terms:' .. id)
  return type(terms) ~= 'string' or not string.find(terms .. '\n', '\n' .. ANY .. '\n', 1, true)
end

local function restore_terms(head)
  local tag, id = parts(head)
  local found = redis.pcall('HGET', head, 'created_ms')
  if type(found) ~= 'string' then
    return {} -- it is gone
  end
  local key = tag .. 'terms:' .. id
  local is = type_of(key)
  if is ~= 'string' and is ~= 'none' then
    call('RENAME', key, tag .. 'damaged:terms:' .. id)
    call('PEXPIRE', tag .. 'damaged:terms:' .. id, KEPT_MS)
  end
  local known = call('GET', key) or string.format('%013d', tonumber(found) or 0)
  for i = 2, #ARGV do
    if not string.find(known .. '\n', '\n' .. ARGV[i] .. '\n', 1, true) then
      known = known .. '\n' .. ARGV[i]
    end
  end
  call('SET', key, known)
  add_postings(tag, id)
  return {}
end

local function rebuild(tag, cursor, count)
  local now = now_ms()
  local lost = {}
  local heads, leases, terms = tag .. 'head:', tag .. 'lease:', tag .. 'terms:'
  local found = call('SCAN', cursor, 'MATCH', tag .. '*', 'COUNT', count)
  for _, key in ipairs(found[2]) do
    if string.sub(key, 1, #heads) == heads then
      local id = string.sub(key, #heads + 1)
      add_head(tag, id, now)
      if lacks_terms(tag, id) then
        lost[#lost + 1] = id
      end
    elseif string.sub(key, 1, #terms) == terms then
      add_postings(tag, string.sub(key, #terms + 1))
    elseif string.sub(key, 1, #leases) == leases then
      call('SADD', tag .. 'owners', string.sub(key, #leases + 1))
    end
  end
  if found[1] == '0' then
    call('DEL', tag .. 'mending')
  end
  return {found[1], unpack(lost)}
end

if ARGV[1] == 'rebuild' then
  return rebuild(string.sub(KEYS[1], 1, -7), ARGV[2], ARGV[3])
end
if ARGV[1] == 'terms' then
  return restore_terms(KEYS[1])
end
if ARGV[1] == 'mark' then
  for _, key in ipairs(KEYS) do
    call('SET', string.sub(key, 1, -7) .. 'mending', '1')
  end
  return {}
end
return survey(ARGV[1] == 'aside')
