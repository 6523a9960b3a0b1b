import { IDLE, NEVER, NOT_HELD, NO_TICK } from './stored-lock.js';
import { VERBS } from './vote-verbs.js';

/** In: ARGV[1], the header. Makes the time of this server and the ballot. */
const READ_HEADER = `
local call, pcall, sub, find, match = redis.call, redis.pcall, string.sub, string.find, string.match
local args, header = ARGV, ARGV[1]
local never, noTick, notHeld, idle = '${NEVER}', '${NO_TICK}', '${NOT_HELD}', '${IDLE}'

local clock = call('TIME')
local micros = tostring(clock[2])
if #micros < 6 then micros = sub('00000' .. micros, -6) end
local now = clock[1] .. micros
local isTimely = header < now and now <= sub(header, 18, 33)
local ballot, firstBallot, isRaised = sub(header, 35, 50), sub(header, 52, 67), sub(header, 69, 69) == '1'
local channel = sub(header, 71)
`;

/**
 * In: the rows of requests, and the texts of all locks. Answers what needs no more than a comparison of texts, and leaves the
 * rest in `slowPath`. Each text that Lua makes costs about as much as reading a key: without this path, B7 with 64 callers is
 * 44 % slower.
 */
const FAST_PATH = `
local texts = #KEYS == 1 and {call('GET', KEYS[1])} or call('MGET', unpack(KEYS))
local replies, slowPath = {now}, nil

-- Without a runner and a pause as well, which a grant would write over.
local function isIdle(text)
  return not text or text < ballot and find(text, idle, 18, true) == 18 and find(text, '^%S+ %S+ %- %- ', 18 + #idle)
end

local function isHeldAlone(text, holder)
  return text and find(text, noTick, 18, true) == 18 and find(text, '0 ' .. never .. ' ' .. holder .. ' ', 103, true) == 103
end

local r, at = 1, 2
while at < #args do
  local command, first = args[at], at + 2
  local memoryMs = match(command, '^acquire (%d+)')
  if memoryMs then first = at + 5 end
  local last = first + args[at + 1] - 1
  local isFresh, isSure = memoryMs and isTimely and not isRaised, command == 'release sure'
  local beforeHolder, afterHolder
  if isFresh then beforeHolder, afterHolder = args[at + 2] .. now .. args[at + 3], args[at + 4] end
  for a = first, last do
    local key, text, holder = KEYS[r], texts[r], args[a]
    if isFresh and isIdle(text) and not pcall('PSETEX', key, memoryMs, beforeHolder .. holder .. afterHolder).err then
      replies[r + 1] = 'granted'
    elseif isSure and isHeldAlone(text, holder) and type(pcall('SETRANGE', key, 51, notHeld)) == 'number' then
      replies[r + 1] = 'released'
    else
      slowPath = slowPath or {}
      slowPath[#slowPath + 1] = {r = r, holder = holder, row = at}
    end
    r = r + 1
  end
  at = last + 1
end
`;

/**
 * In: `slowPath`, the requests that need more than a comparison of texts. Out: their replies. Its functions are made only when
 * they are needed, because that takes longer than a request that does not need them.
 */
const SLOW_PATH = `
  local format = string.format
  local nowUs = tonumber(now)
  local function wide(number) return format('%016.0f', number) end
  local function plain(number) return format('%.0f', number) end
  local function larger(one, other) if one > other then return one else return other end end

  local function parse(row)
    local verb, rest = match(args[row], '^(%S+) ?(.*)$')
    local params = {verb = verb, rest = rest}
    if verb == 'acquire' then
      local memoryMs, retryWithinMs = match(rest, '^(%d+) (%d+)$')
      params.memoryMs, params.retryWithinMs = tonumber(memoryMs), tonumber(retryWithinMs)
      params.last, params.lease, params.instance = sub(args[row + 2], 1, 16), sub(args[row + 3], 2, 17), sub(args[row + 4], 23)
    elseif verb == 'claim' or verb == 'renew' or verb == 'rejoin' then
      local leaseMs, memoryMs, others = match(rest, '^(%d+) (%d+) ?(.*)$')
      params.lease, params.memoryMs, params.rest = wide(leaseMs * 1000), tonumber(memoryMs), others
    end
    if verb == 'claim' then
      local tokenCount, tickMs, maxAttempts, instance = match(params.rest, '^(%d+) (%d+) (%d+) (.*)$')
      params.retryWithinMs, params.instance, params.last = 0, instance, wide(ballot + tokenCount - 1)
      params.tickMs, params.maxAttempts = tonumber(tickMs), tonumber(maxAttempts)
    end
    return params
  end
${VERBS}
  local paramsOfRow = {}
  for _, one in ipairs(slowPath) do
    local params, text = paramsOfRow[one.row] or parse(one.row), texts[one.r]
    paramsOfRow[one.row] = params
    replies[one.r + 1] = verbs[params.verb](KEYS[one.r], text and read(text), one.holder, params)
  end
`;

/**
 * What one server of a quorum does, for any number of requests in one call and one atomic step. A server only votes: a lock
 * is held when a majority of the servers has voted for the same holder and token.
 *
 * - In: KEYS has one lock for each request. ARGV[1] is the header: the earliest and the latest time of this server in µs at
 *   which the call may take effect, the ballot, the ballot of the first round, whether votes that the acquisition already
 *   has are raised to the ballot (1), and the channel for notifications. Then for each row of requests with the same
 *   command: the command, the number of requests, and the holders. A command is a verb and its parameters. Those of `acquire`
 *   are how many ms to remember the lock, and within how many ms a refused waiter retries (0: it does not wait); before its
 *   holders come the columns of the lock before the time of the grant, between that time and the holder, and after the holder.
 * - Out: the server's time in µs, then a reply for each request, with NUL in between: one text, because ioredis and Redis
 *   spend most time per value. `granted` alone means: with the ballot as token, as does `=` after it.
 * - One step, so that nothing changes between the check of a lock and its vote.
 *
 * Numbers are passed as text, because Lua prints large ones with an exponent. Leases end by the server's own clock.
 *
 * A ballot is the fencing token that is asked for. The server votes for it only if it is larger than every token that it has
 * granted. Two majorities have a server in common, so the later grant has the larger token.
 */
export const VOTE_SCRIPT = `${READ_HEADER}${FAST_PATH}
if slowPath then ${SLOW_PATH} end

return table.concat(replies, '\\0')
`;
