-- A large value of a saga whose journal lies elsewhere.
--
-- KEYS  value
-- ARGV  ttl_ms, bytes
-- Reply 0
--
-- LAW  With `replicated:N` it counts once the replicas have it: the journal elsewhere has only its digest.

redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[1])
return 0
