-- End the lease of an owner now. A repeat changes nothing.
--
-- KEYS  the owner's lease key, its wake key and the owners of each partition, in turn
-- ARGV  owner, 1 if it owns no saga any more

for k = 1, #KEYS, 3 do
  local tag = string.sub(KEYS[k + 2], 1, -7)
  redis.call('DEL', KEYS[k], KEYS[k + 1], tag .. 'taken:' .. ARGV[1])
  if ARGV[2] == '1' then
    redis.call('SREM', KEYS[k + 2], ARGV[1])
  end
end
return 0
