-- A range of a journal, or false when there is no such saga.
--
-- KEYS  journal and head
-- ARGV  first and last index

if redis.call('EXISTS', KEYS[2]) == 0 then
  return false
end
return redis.call('LRANGE', KEYS[1], ARGV[1], ARGV[2])
