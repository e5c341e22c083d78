-- The format of the store and its number of partitions, written by its first user and never changed afterwards.
--
-- KEYS  meta
-- ARGV  format and partitions of a new store
-- Reply {format, partitions, the wrapped key of the store or false}

redis.call('HSETNX', KEYS[1], 'format', ARGV[1])
redis.call('HSETNX', KEYS[1], 'partitions', ARGV[2])
return redis.call('HMGET', KEYS[1], 'format', 'partitions', 'key')
