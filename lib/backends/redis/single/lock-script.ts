import { TOKEN_MEMORY_MS } from './lock-columns.js';
import { LOCK_VERBS } from './lock-verbs.js';

/** In: KEYS, and the first three of ARGV. Makes the time, reads all locks, and parses the parameters of a row. */
const READ_REQUESTS = `
local call, pcall, sub, find, byte, format = redis.call, redis.pcall, string.sub, string.find, string.byte, string.format
local function wide(number) return format('%016.0f', number) end

local clock = call('TIME')
local nowUs = clock[1] * 1000000 + clock[2]
local now, never, noTick = wide(nowUs), '0000000000000000', '                '
local notHeld = never .. ' ' .. never
local notAfterUs = tonumber(ARGV[1])
local isTooLate = notAfterUs > 0 and nowUs > notAfterUs
local step = tonumber(ARGV[3])

local locks
if #KEYS == step then
  locks = {call('GET', KEYS[1])}
else
  local keys = {}
  for k = 1, #KEYS, step do keys[#keys + 1] = KEYS[k] end
  locks = call('MGET', unpack(keys))
end

local function parseParams(text)
  local verb, leaseMs, tokenCount, retryWithinMs, rest = string.match(text, '^(%a+) ?(%d*) ?(%d*) ?(%d*) ?(.*)$')
  local params = {verb = verb}
  if verb == 'claim' then
    local names = {'tickMs', 'maxEarlyMs', 'staleAfterMs', 'maxAttempts', 'rememberMs'}
    for _, name in ipairs(names) do
      params[name], rest = string.match(rest, '^(%S+) (.*)$')
      params[name] = tonumber(params[name])
    end
  end
  if leaseMs ~= '' then
    params.leaseMs = tonumber(leaseMs)
    params.untilText = ' ' .. wide(nowUs + leaseMs * 1000) .. ' '
    params.memoryMs = leaseMs + ${TOKEN_MEMORY_MS}
  end
  if verb == 'renew' then
    params.moreTokens = tonumber(tokenCount)
  elseif tokenCount ~= '' then
    params.tokenCount, params.retryWithinMs = tonumber(tokenCount), tonumber(retryWithinMs)
    params.last = wide(nowUs + tokenCount - 1)
    params.suffix = ' ' .. now .. ' ' .. rest
    params.prefix = '0 ' .. params.last .. params.untilText .. now .. ' ' .. noTick .. ' '
  end
  return params
end
`;

/**
 * In: the rows of requests. Serves those for locks without contention, which most are, with as little Lua as possible: grants
 * a free key, and releases a lock for which nobody waits. Leaves the rest in `slowPath`.
 */
const FAST_PATH = `
local unheld = notHeld .. ' ' .. noTick
local replies, slowPath = {now}, nil
local r, at = 1, 4
while at < #ARGV do
  local params, last = parseParams(ARGV[at]), at + 1 + ARGV[at + 1]
  local verb, prefix, suffix, memoryMs = params.verb, params.prefix, params.suffix, params.memoryMs
  local isRelease, isAcquire = verb == 'release', verb == 'acquire' and not isTooLate
  for a = at + 2, last do
    local k, lock, holder = (r - 1) * step + 1, locks[r], ARGV[a]
    if isRelease and lock and byte(lock) == 48 and byte(lock, 37) ~= 48 and byte(lock, 54) == 32 and find(lock, holder, 71, true) == 71
      and byte(lock, 71 + #holder) == 32 and sub(lock, 20, 35) > now
      and type(pcall('SETRANGE', KEYS[k], 19, notHeld)) == 'number' then
      replies[r + 1] = 'released'
    elseif isAcquire and (not lock
      or byte(lock) == 48 and find(lock, unheld, 20, true) == 20 and sub(lock, 3, 18) < now)
      and not pcall('PSETEX', KEYS[k], memoryMs, prefix .. holder .. suffix).err then
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

/** In: `slowPath`. Out: its replies. Its functions are made only when they are needed, because making them takes time. */
const SLOW_PATH = `${LOCK_VERBS}
  for _, one in ipairs(slowPath) do
    replies[one.r + 1] = verbs[one.params.verb](one.k, locks[one.r], one.holder, one.params)
  end
`;

/**
 * Decides every request on one Redis. One script, so that any number of requests goes to the server in one call and takes
 * effect in one step, with nothing in between a check and its change.
 *
 * - In: three KEYS for each request: the lock, its wait queue in order of arrival, and the details of the waiters; or, for
 *   large batches, the lock alone. ARGV: the latest server time in µs at which an acquisition may take effect (0: any), the
 *   channel on which the caller receives notifications, how many KEYS a request has. Then for each row of requests with the
 *   same parameters: the parameters, the number of requests, and the holders.
 * - Out: the server's time in µs, which is the fencing token of each `granted` without a token of its own; then a reply for
 *   each request. `needsQueue`: nothing was done, because the request needs all three KEYS.
 * - Numbers are passed as text, because Lua prints large ones with an exponent. The only clock is the server's.
 */
export const LOCK_SCRIPT = `${READ_REQUESTS}${FAST_PATH}
if slowPath then ${SLOW_PATH} end

return replies
`;
