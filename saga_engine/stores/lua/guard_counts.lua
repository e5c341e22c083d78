-- The statistics of tools: numbers by name.
--
-- KEYS  stats ('look': any number of them)
-- ARGV  'look', or 'add' with name and number in turn
-- Reply look: a flat list of name and number for each key; add: 0
--
-- LAW  A repeat adds once more: nothing depends on these numbers. They are kept for ever, one small hash a tool.

if ARGV[1] == 'add' then
  for i = 2, #ARGV, 2 do
    redis.call('HINCRBY', KEYS[1], ARGV[i], ARGV[i + 1])
  end
  return 0
end
local reply = {}
for k, key in ipairs(KEYS) do
  reply[k] = redis.call('HGETALL', key)
end
return reply
