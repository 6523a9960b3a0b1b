/** Whether a lock is without contention, by one look at its text. Both short paths of the script begin with it. */
export const UNCONTENDED = `
-- Nobody holds the key or waits for it, it has no tick, and the clock was not set back.
local function isUnused(lock)
  return not lock or byte(lock) == 48 and find(lock, unheld, 20, true) == 20 and sub(lock, 3, 18) < now
end

-- The holder has the lock, nobody waits for it, it has no tick, and the clock was not set back.
local function isHeldAlone(lock, holder)
  return lock and byte(lock) == 48 and byte(lock, 37) ~= 48 and byte(lock, 54) == 32 and find(lock, holder, 71, true) == 71
    and byte(lock, 71 + #holder) == 32 and sub(lock, 20, 35) > now and sub(lock, 3, 12) <= seconds
end
`;

/**
 * In: the time and ARGV. Out: the time, if the call has a single request for a lock without contention, which most have: it
 * acquires a free key, or releases a lock for which nobody waits. Otherwise nothing is done, and the rest of the script
 * decides. It is the same decision as in the rest, with as little Lua as possible: a call takes a third of the time.
 */
export const LONE_PATH = `
if #args == 1 then
  local lock = call('GET', KEYS[1])
  if isHeldAlone(lock, args[1]) and not pcall('PSETEX', KEYS[1], tokenMemoryMs, '0 ' .. sub(lock, 37, 52) .. ' ' .. unheld).err then
    return now
  end
elseif #args == 3 and args[1] >= now then
  local leaseMs, tokenCount, instance = match(args[2], '^acquire (%d+) (%d+) %d+(.*)$')
  if leaseMs and isUnused(call('GET', KEYS[1])) then
    local lock = '0 ' .. after(tokenCount - 1) .. ' ' .. after(leaseMs * 1000) .. ' ' .. now .. ' ' .. noTick .. ' '
      .. args[3] .. ' ' .. now .. instance
    if not pcall('PSETEX', KEYS[1], format('%d', leaseMs + tokenMemoryMs), lock).err then return now end
  end
end
`;

/**
 * In: the rows of requests. Serves those for locks without contention, which most are, with as little Lua as possible: grants
 * a free key, and releases a lock for which nobody waits. Leaves the rest in `slowPath`.
 */
export const FAST_PATH = `
local replies, slowPath = {now}, nil
local r, at = 1, 2
while at < #args do
  local params, last = parseParams(args[at]), at + 1 + args[at + 1]
  local verb, prefix, suffix, memoryMs = params.verb, params.prefix, params.suffix, params.memoryMs
  local isRelease, isAcquire = verb == 'release', verb == 'acquire' and not isTooLate
  for a = at + 2, last do
    local k, lock, holder = (r - 1) * step + 1, locks[r], args[a]
    if isRelease and isHeldAlone(lock, holder)
      and not pcall('PSETEX', KEYS[k], tokenMemoryMs, sub(lock, 1, 19) .. unheld).err then
      replies[r + 1] = 'released'
    elseif isAcquire and isUnused(lock) and not pcall('PSETEX', KEYS[k], memoryMs, prefix .. holder .. suffix).err then
      replies[r + 1] = 'granted'
    elseif step == 1 and lock and verb ~= 'renew' and (byte(lock) == 49
      or verb == 'acquire' and params.retryWithinMs > 0 and sub(lock, 20, 35) > now) then
      replies[r + 1] = 'needsQueue'
    else
      slowPath = slowPath or {}
      slowPath[#slowPath + 1] = {r = r, k = k, holder = holder, params = params}
    end
    r = r + 1
  end
  at = last + 1
end
`;
