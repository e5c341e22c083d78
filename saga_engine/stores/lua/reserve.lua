-- Reserve an id for a saga that is created later, so that no other saga takes it first.
--
-- KEYS  head
-- ARGV  digest of that saga, the saga whose effects it will own, ttl_ms
-- Reply the digest for which the id is taken now: that of the saga that exists, of an earlier reservation, or the given
--       one; '' for a damaged head
--
-- LAW  `append` removes the reservation when it creates the saga, and creates no other saga while it stands.

local call = redis.call
local head, digest = KEYS[1], ARGV[1]
local tag, id = parts(head)
local reserved = tag .. 'reserved:' .. id

if call('EXISTS', head) == 1 then
  return call('HGET', head, 'digest') or ''
end
local known = call('HGET', reserved, 'digest')
if known and known ~= digest then
  return known
end
call('HSET', reserved, 'digest', digest, 'of', ARGV[2])
call('PEXPIRE', reserved, ARGV[3])
return digest
