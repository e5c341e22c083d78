-- Sagas that have all of some terms, the most recently created first.
--
-- KEYS  the owners of partitions
-- ARGV  how many, how many candidates to look at, the place before which to look (created NUL id; '' is the newest),
--       the earliest time of creation (13 digits), the statuses as a text with commas ('' for all), then the terms, at
--       least one
-- Reply for each partition: {the place down to which it was looked at ('' to its end), created, id, created, id, ...}
--
-- The rarest of the terms is walked; a saga of each candidate is looked up under the other terms. If few sagas have one
-- of the statuses, these are walked instead.
-- LAW  A member whose saga is gone is wrong: this script removes it.

local call = redis.call
local wanted, looks, before, since = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]
local statuses = {}
local any_status = ARGV[5] == ''
local FIRST_TERM = 6
for status in string.gmatch(ARGV[5], '[^,]+') do
  statuses[status] = true
end

local function split(place)
  local at = string.find(place, '\0', 1, true)
  return string.sub(place, 1, at - 1), string.sub(place, at + 1)
end

local function has_all(search, created, id, but)
  for i = FIRST_TERM, #ARGV do
    if i ~= but and not call('ZSCORE', search, posting(ARGV[i], created, id)) then
      return false
    end
  end
  return true
end

-- (A wrong head is the business of who reads it.)
local function status_of(tag, id)
  local found = redis.pcall('HGET', tag .. 'head:' .. id, 'status')
  return type(found) == 'string' and found or (found and '' or nil)
end

local function walk_term(tag, which)
  local search, term = tag .. 'search', ARGV[which]
  local reply = {''}
  local top = before == '' and '(' .. term .. '\1' or '(' .. term .. '\0' .. before
  local left = looks
  while true do
    local members = call('ZREVRANGEBYLEX', search, top, '[' .. term .. '\0', 'LIMIT', 0, math.min(left, 200))
    for _, member in ipairs(members) do
      left = left - 1
      top = '(' .. member
      local place = string.sub(member, #term + 2)
      local created, id = split(place)
      if created < since then
        return reply
      end
      local status = status_of(tag, id)
      if status == nil then
        forget_terms(tag, id, call)
        call('ZREM', search, member)
      elseif (any_status or statuses[status]) and has_all(search, created, id, which) then
        reply[#reply + 1], reply[#reply + 2] = created, id
        if #reply > 2 * wanted then
          reply[1] = place
          return reply
        end
      end
    end
    if #members == 0 then
      return reply
    end
    if left <= 0 then
      reply[1] = string.sub(top, #term + 3)
      return reply
    end
  end
end

local function walk_statuses(tag)
  local search, found = tag .. 'search', {}
  for status in pairs(statuses) do
    for _, id in ipairs(call('ZRANGE', tag .. 'index:' .. status, 0, -1)) do
      local of = redis.pcall('HMGET', tag .. 'head:' .. id, 'status', 'created_ms')
      if of[1] == status and tonumber(of[2]) then
        local created = string.format('%013d', tonumber(of[2]))
        local place = created .. '\0' .. id
        if (before == '' or place < before) and created >= since and has_all(search, created, id) then
          found[#found + 1] = place
        end
      end
    end
  end
  table.sort(found, function(one, other) return one > other end)
  local reply = {#found > wanted and found[wanted] or ''}
  for i = 1, math.min(wanted, #found) do
    reply[#reply + 1], reply[#reply + 2] = split(found[i])
  end
  return reply
end

local function find(tag)
  local rarest, least = FIRST_TERM, math.huge
  for i = FIRST_TERM, #ARGV do
    local count = call('ZLEXCOUNT', tag .. 'search', '[' .. ARGV[i] .. '\0', '(' .. ARGV[i] .. '\1')
    if count < least then
      rarest, least = i, count
    end
  end
  if not any_status then
    local count = 0
    for status in pairs(statuses) do
      count = count + call('ZCARD', tag .. 'index:' .. status)
    end
    if count < looks and count < least then
      return walk_statuses(tag)
    end
  end
  return walk_term(tag, rarest)
end

local reply = {}
for k, key in ipairs(KEYS) do
  reply[k] = find(string.sub(key, 1, -7))
end
return reply
