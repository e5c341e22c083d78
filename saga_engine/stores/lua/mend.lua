-- Keys of a partition that have a wrong type, because of a foreign writer: they are set aside, and their content is
-- rebuilt from the heads.
--
-- KEYS  the owners of partitions ('rebuild': of one)
-- ARGV  'look', status...                 finds them
--       'aside', status...                renames them
--       'mark'                            marks them as unfinished: the next process that mends rebuilds them
--       'rebuild', cursor, how many keys to read
-- Reply mark: nothing; look and aside: a flat list of word and key: 'wrong' of a wrong type (look: still there, aside: there no more),
--       'aside' a key that was set aside recently, 'unfinished' a partition that is to be rebuilt; rebuild: the
--       next cursor
--
-- LAWS
-- 1. Nothing is thrown away: the damaged key is kept as <tag>damaged:<name> for 30 days.
-- 2. The process that sets a key aside rebuilds it, and if it dies another one does: `mending` exists until that is
--    done.
-- 3. Rebuilding only adds, so it may be repeated, and the partition may be used meanwhile. A saga that lost its
--    time in `due` is due now; its next owner knows the real time.

local call = redis.call
local KEPT_MS = 30 * 86400000

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

local function rebuild(tag, cursor, count)
  local now = now_ms()
  local heads, leases, terms = tag .. 'head:', tag .. 'lease:', tag .. 'terms:'
  local found = call('SCAN', cursor, 'MATCH', tag .. '*', 'COUNT', count)
  for _, key in ipairs(found[2]) do
    if string.sub(key, 1, #heads) == heads then
      add_head(tag, string.sub(key, #heads + 1), now)
    elseif string.sub(key, 1, #terms) == terms then
      add_postings(tag, string.sub(key, #terms + 1))
    elseif string.sub(key, 1, #leases) == leases then
      call('SADD', tag .. 'owners', string.sub(key, #leases + 1))
    end
  end
  if found[1] == '0' then
    call('DEL', tag .. 'mending')
  end
  return found[1]
end

if ARGV[1] == 'rebuild' then
  return rebuild(string.sub(KEYS[1], 1, -7), ARGV[2], ARGV[3])
end
if ARGV[1] == 'mark' then
  for _, key in ipairs(KEYS) do
    call('SET', string.sub(key, 1, -7) .. 'mending', '1')
  end
  return {}
end
return survey(ARGV[1] == 'aside')
