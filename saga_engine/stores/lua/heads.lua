-- The heads of sagas, false for one that does not exist.
--
-- KEYS  heads
-- ARGV  for each, the status under whose index it was found, or '' if it was requested by name
--
-- LAW  An index entry whose saga is gone, or has another status by now, is wrong: this script removes it.
--      A saga with a key of a wrong type hides no other: {text} stands for it. Requested by name it is an error.

local reply = {}
for k, head in ipairs(KEYS) do
  local went, found = pcall(describe, head)
  if not went and ARGV[k] == '' then
    error(found, 0)
  end
  if not went then
    found = {type(found) == 'table' and found.err or tostring(found)}
  elseif ARGV[k] ~= '' and (not found or (found[1] and found[1] ~= ARGV[k])) then
    local tag, id = parts(head)
    redis.call('ZREM', tag .. 'index:' .. ARGV[k], id)
  end
  reply[k] = found
end
return reply
