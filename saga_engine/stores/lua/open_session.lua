-- Start (or start anew) the lease of an owner in every partition. One lease covers all the sagas of a process.
--
-- KEYS  the owner's session keys
-- ARGV  ttl_ms
-- Reply the time in ms

for _, session in ipairs(KEYS) do
  redis.call('SET', session, '1', 'PX', ARGV[1])
end
return now_ms()
