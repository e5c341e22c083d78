-- A value that somebody relies on, where the last good result of a read stands as well.
--
-- KEYS  good
-- ARGV  ttl_ms, value
-- Reply 0
--
-- LAW  It counts once replicas have it, where they are waited for. (That of a read does not: it costs a call if it is lost.)

redis.call('HSET', KEYS[1], 'result', ARGV[2], 'at_ms', now_ms())
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 0
