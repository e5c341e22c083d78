-- Reserve the next free moment of a rate limit: the generic cell rate algorithm of ITU-T I.371 in its virtual
-- scheduling form, in whole microseconds.
--
-- KEYS  the theoretical arrival time (µs) of the next call, a space, and when that was written (µs)
-- ARGV  interval_us, burst, max_wait_ms ('' for any)
-- Reply how many ms to wait from now (rounded up), or -1: longer than max_wait_ms
--
-- LAWS
-- 1. The n-th reservation in a row is for no earlier than (n - burst) intervals after the first, so in any span of time
--    t at most burst + t / interval calls fall.
-- 2. A refused call reserves nothing.
-- 3. The key expires once it is equivalent to a missing key.
-- 4. What is written in the future was written by a clock that has stepped back since: the arrival goes back with it, so
--    that nobody waits for the step.
-- 5. A repeat after a lost reply reserves once more: the limit holds, one time slot is wasted.

local interval_us, burst, max_wait_ms = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]

-- (A value that is none, from a foreign writer, is overwritten.)
local found_us, written_us = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+) (%d+)$')
local ahead_us = math.max((tonumber(written_us) or 0) - now_us, 0)
local arrival_us = math.max((tonumber(found_us) or 0) - ahead_us, now_us)
local wait_ms = math.max(math.ceil((arrival_us - (burst - 1) * interval_us - now_us) / 1000), 0)
if max_wait_ms and wait_ms > max_wait_ms then
  return -1
end
arrival_us = arrival_us + interval_us
-- Not by concatenation or implicitly: Lua would round it to 14 digits.
local text = string.format('%.0f %.0f', arrival_us, now_us)
redis.call('SET', KEYS[1], text, 'PX', string.format('%.0f', math.ceil((arrival_us - now_us) / 1000)))
return wait_ms
