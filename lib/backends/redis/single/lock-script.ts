import { LOCK_VERBS } from './lock-verbs.js';
import { FAST_PATH, LONE_PATH, UNCONTENDED } from './uncontended-paths.js';

/** Makes the time of the server, as text in 16 digits. */
const READ_TIME = `
local call, pcall, sub, find, byte, match, format =
  redis.call, redis.pcall, string.sub, string.find, string.byte, string.match, string.format
local args, clock = ARGV, call('TIME')
local seconds, micros = clock[1], clock[2]
local now = seconds .. micros
if #now < 16 then now = format('%010d%06d', seconds, micros) end

-- The time in us from now. Two short numbers are formatted in half the time of a long one.
local function after(us)
  local sum = micros + us
  local rest = sum % 1000000
  return format('%010d%06d', seconds + (sum - rest) / 1000000, rest)
end

local never, noTick = '0000000000000000', '                '
local notHeld = '0000000000000000 0000000000000000'
local unheld = '0000000000000000 0000000000000000                 '
`;

/** In: KEYS and the header. Reads all locks, and parses the parameters of a row. */
const READ_REQUESTS = `
if #args == 1 then args = {'9999999999999999 3 ', 'release', '1', args[1]}
elseif #args == 3 then args = {args[1], args[2], '1', args[3]} end
local nowUs = tonumber(now)
local header = args[1]
local isTooLate, step = now > header, tonumber(sub(header, 18, 18))
local function wide(number) return format('%016.0f', number) end

local locks
if #KEYS == step then
  locks = {call('GET', KEYS[1])}
else
  local keys = {}
  for k = 1, #KEYS, step do keys[#keys + 1] = KEYS[k] end
  locks = call('MGET', unpack(keys))
end

local function parseParams(text)
  local verb, leaseMs, tokenCount, retryWithinMs, rest = match(text, '^(%a+) ?(%d*) ?(%d*) ?(%d*) ?(.*)$')
  local params = {verb = verb}
  if verb == 'claim' then
    local names = {'tickMs', 'maxEarlyMs', 'staleAfterMs', 'takeoverWithinMs', 'maxAttempts', 'rememberMs'}
    for _, name in ipairs(names) do
      params[name], rest = match(rest, '^(%S+) (.*)$')
      params[name] = tonumber(params[name])
    end
  end
  if leaseMs ~= '' then
    params.leaseMs = tonumber(leaseMs)
    params.untilText = ' ' .. after(leaseMs * 1000) .. ' '
    params.memoryMs = leaseMs + tokenMemoryMs
  end
  if verb == 'renew' then
    params.moreTokens = tonumber(tokenCount)
  elseif tokenCount ~= '' then
    params.tokenCount, params.retryWithinMs = tonumber(tokenCount), tonumber(retryWithinMs)
    params.last = after(tokenCount - 1)
    params.suffix = ' ' .. now .. ' ' .. rest
    params.prefix = '0 ' .. params.last .. params.untilText .. now .. ' ' .. noTick .. ' '
  end
  return params
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
 *   large batches, the lock alone. ARGV: the header, which has the latest server time in µs at which an acquisition may take
 *   effect, how many KEYS a request has, and the channel on which the caller receives notifications. Then for each row of
 *   requests with the same parameters: the parameters, the number of requests, and the holders. A single request has no
 *   number, and a single release has only its holder.
 * - Out: the server's time in µs, which is the fencing token of each `granted` without a token of its own; then a reply for
 *   each request. `needsQueue`: nothing was done, because the request needs all three KEYS. The time alone: the single
 *   request was granted or released.
 * - Numbers are passed as text, because Lua prints large ones with an exponent. The only clock is the server's.
 */
export const lockScript = (tokenMemoryMs: number): string =>
  `local tokenMemoryMs = '${tokenMemoryMs}'${READ_TIME}${UNCONTENDED}${LONE_PATH}${READ_REQUESTS}${FAST_PATH}
if slowPath then ${SLOW_PATH} end

return replies
`;
