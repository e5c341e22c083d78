-- A large value of a saga whose journal lies elsewhere.
--
-- KEYS  value
-- ARGV  ttl_ms, bytes
-- Reply 0
--
-- LAW  It counts once replicas have it, where they are waited for: the journal elsewhere has nothing but its digest.

redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[1])
return 0
