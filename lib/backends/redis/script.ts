import { createHash } from 'node:crypto';

/** How long a fencing token is remembered after its lease; see docs/decisions.md for why an hour is enough. */
const TOKEN_MEMORY_MS = 60 * 60 * 1_000;
/** How long the newest claimed tick of a job is remembered: longer than any two of its ticks are apart. */
const TICK_MEMORY_MS = 400 * 24 * 60 * 60 * 1_000;
/** How long a key is kept for the next in line to come for it. One who died costs so much, and not a lease. */
const CLAIM_WINDOW_MS = 250;
/** Who stands behind the one who was called looks when that one did not come. */
const DEPUTY_DELAY_MS = CLAIM_WINDOW_MS + 5;

/**
 * One script for everything, so that any number of requests goes to the server in one call and takes effect in one
 * step: nobody sees a key between the check and the change.
 *
 * - In: for each request three KEYS: the lock, its line in the order of arrival, and who stands there. ARGV: the latest
 *   server time in µs at which an acquisition is still wanted (0: any), the channel on which the asker hears calls, then
 *   for each request its terms, which are the same text for many, and its holder.
 * - Out: the server's time in µs, then a text for each request.
 * - Numbers cross as text: Lua prints large ones with an exponent. Time is the server's alone.
 *
 * A lock is a text of columns: whether somebody may stand in line, the last fencing token given out, until when it is
 * held, the fencing token of its grant, the newest claimed tick; then its holder, since when, and the holder's instance.
 * Token 0 means that the lock is kept for the one whose turn it is. The text outlives the grant, as the memory of its
 * fencing token. Columns are of one width so that they can be compared as text: numbers are slow in Lua.
 */
const LUA = `
local call, pcall, sub, find, byte, format =
  redis.call, redis.pcall, string.sub, string.find, string.byte, string.format
local function wide(number) return format('%016.0f', number) end
local function plain(number) return format('%.0f', number) end

local clock = call('TIME')
local nowUs = clock[1] * 1000000 + clock[2]
local nowMs = math.floor(nowUs / 1000)
local now, nowToken, never, noTick = wide(nowMs), wide(nowUs), wide(0), string.rep(' ', 16)
local notAfterUs, channel = tonumber(ARGV[1]), ARGV[2]
local isTooLate = notAfterUs > 0 and nowUs > notAfterUs

local locks, lockKeys = {}, {}
for k = 1, #KEYS, 3 do lockKeys[#lockKeys + 1] = KEYS[k] end
for i, lock in ipairs(call('MGET', unpack(lockKeys))) do locks[lockKeys[i]] = lock end

local function hasLine(lock) return byte(lock) == 49 end
local function lastOf(lock) return sub(lock, 3, 18) end
local function untilOf(lock) return sub(lock, 20, 35) end
local function tokenOf(lock) return sub(lock, 37, 52) end
local function tickOf(lock) return sub(lock, 54, 69) end
local function isHeld(lock) return lock and untilOf(lock) > now end
local function isOf(lock, holder)
  return isHeld(lock) and find(lock, holder, 71, true) == 71 and byte(lock, 71 + #holder) == 32
end
local function remainingMs(lock) return tonumber(untilOf(lock)) - nowMs end

local function write(k, lock, memoryMs)
  local key = KEYS[k]
  locks[key] = lock
  if memoryMs then call('SET', key, lock, 'PX', memoryMs) else call('SET', key, lock, 'KEEPTTL') end
end

local function leave(k, holder)
  call('ZREM', KEYS[k + 1], holder)
  call('HDEL', KEYS[k + 2], holder)
end

local function stand(k, holder, terms)
  call('ZADD', KEYS[k + 1], 'NX', plain(nowUs), holder)
  call('HSET', KEYS[k + 2], holder, wide(nowMs + terms.againWithinMs) .. channel)
  call('PEXPIRE', KEYS[k + 1], terms.againWithinMs * 2)
  call('PEXPIRE', KEYS[k + 2], terms.againWithinMs * 2)
end

-- Who stands first, and on which channel to call. Those who have not asked again in time are sent away.
local function first(k)
  while true do
    local holder = call('ZRANGE', KEYS[k + 1], 0, 0)[1]
    if not holder then return end
    local place = call('HGET', KEYS[k + 2], holder)
    if place and sub(place, 1, 16) >= now then return holder, sub(place, 17) end
    leave(k, holder)
  end
end

-- The lock is free now. Keeps it for the first in line and calls him, and the next one for the case that he does not come.
local function handOver(k, lock)
  local memory = ' ' .. lastOf(lock) .. ' '
  local tick = ' ' .. tickOf(lock) .. ' '
  local holder, itsChannel
  if hasLine(lock) then holder, itsChannel = first(k) end
  if not holder then return write(k, '0' .. memory .. never .. ' ' .. never .. tick) end
  leave(k, holder)
  local deputy, deputysChannel = first(k)
  local mark = deputy and '1' or '0'
  write(k, mark .. memory .. wide(nowMs + ${CLAIM_WINDOW_MS}) .. ' ' .. never .. tick .. holder .. ' ' .. now .. ' ')
  pcall('PUBLISH', itsChannel, '0 ' .. KEYS[k])
  if deputy then pcall('PUBLISH', deputysChannel, '${DEPUTY_DELAY_MS} ' .. KEYS[k]) end
end

-- Why the tick cannot be claimed, if so.
local function tickRefusal(lock, terms)
  local aheadMs = terms.tickMs - nowMs
  local newest = lock and tonumber(tickOf(lock))
  local reason = newest and terms.tickMs <= newest and 'claimed'
    or aheadMs > terms.maxEarlyMs and 'early'
    or -aheadMs > terms.staleAfterMs and 'stale'
  return reason and 'refused ' .. reason .. ' ' .. plain(aheadMs)
end

local function grant(k, lock, holder, terms)
  local token, last = nowToken, terms.last
  if lock and lastOf(lock) >= nowToken then
    token = wide(tonumber(lastOf(lock)) + 1)
    last = wide(tonumber(lastOf(lock)) + terms.tokenCount)
  end
  local mark = lock and hasLine(lock) and '1 ' or '0 '
  local tick = terms.tick or lock and tickOf(lock) or noTick
  local memoryMs = tick == noTick and terms.tokenMemoryMs or ${TICK_MEMORY_MS}
  write(k, mark .. last .. terms.untilText .. token .. ' ' .. tick .. ' ' .. holder .. terms.bearer, memoryMs)
  return 'granted ' .. token
end

local verbs = {}

function verbs.acquire(k, holder, terms)
  if isTooLate then return 'late' end
  local lock = locks[KEYS[k]]
  local isMine = isOf(lock, holder)
  if isMine and tokenOf(lock) ~= never then
    local memoryMs = tickOf(lock) == noTick and terms.tokenMemoryMs or ${TICK_MEMORY_MS}
    write(k, sub(lock, 1, 18) .. terms.untilText .. sub(lock, 37), memoryMs)
    return 'granted ' .. tokenOf(lock)
  end
  local refusal = terms.tick and tickRefusal(lock, terms)
  if refusal then return refusal end
  if not isMine and isHeld(lock) then
    if not terms.againWithinMs then return 'taken ' .. plain(remainingMs(lock)) end
    stand(k, holder, terms)
    if not hasLine(lock) then write(k, '1' .. sub(lock, 2)) end
    return 'taken ' .. plain(remainingMs(lock)) .. ' inLine'
  end
  if not isMine and lock and hasLine(lock) then
    local head = first(k)
    if head and head ~= holder then
      if terms.againWithinMs then stand(k, holder, terms) end
      handOver(k, lock)
      return 'taken ${CLAIM_WINDOW_MS}' .. (terms.againWithinMs and ' inLine' or '')
    end
    if head then leave(k, holder) end
  end
  return grant(k, lock, holder, terms)
end

function verbs.renew(k, holder, terms)
  local lock = locks[KEYS[k]]
  if not isOf(lock, holder) or tokenOf(lock) == never then return 'lost' end
  if remainingMs(lock) < terms.leaseMs then
    local memoryMs = tickOf(lock) == noTick and terms.tokenMemoryMs or ${TICK_MEMORY_MS}
    write(k, sub(lock, 1, 18) .. terms.untilText .. sub(lock, 37), memoryMs)
  end
  return 'renewed'
end

function verbs.release(k, holder)
  local lock = locks[KEYS[k]]
  if isOf(lock, holder) then
    handOver(k, lock)
    return tokenOf(lock) == never and 'gone' or 'released'
  end
  if lock and hasLine(lock) then leave(k, holder) end
  return 'gone'
end

function verbs.forceRelease(k, token)
  local lock = locks[KEYS[k]]
  if not isHeld(lock) or tokenOf(lock) == never then return 'gone' end
  local wanted = tonumber(token)
  if wanted < tonumber(tokenOf(lock)) or wanted > tonumber(lastOf(lock)) then return 'gone' end
  handOver(k, lock)
  return 'released'
end

function verbs.inspect(k)
  local lock = locks[KEYS[k]]
  if not isHeld(lock) or tokenOf(lock) == never then return 'free' end
  return 'held ' .. tokenOf(lock) .. ' ' .. plain(remainingMs(lock)) .. ' ' .. sub(lock, 71)
end

local function termsFrom(text)
  local verb, leaseMs, tokenCount, againWithinMs, tickMs, maxEarlyMs, staleAfterMs, instance = string.match(text,
    '^(%a+) ?(%d*) ?(%d*) ?(%d*) ?(%S*) ?(%S*) ?(%S*) ?(.*)$')
  local terms = {run = verbs[verb]}
  if leaseMs ~= '' then
    terms.leaseMs = tonumber(leaseMs)
    terms.untilText = ' ' .. wide(nowMs + leaseMs) .. ' '
    terms.tokenMemoryMs = plain(leaseMs + ${TOKEN_MEMORY_MS})
  end
  if tokenCount ~= '' then
    terms.tokenCount = tonumber(tokenCount)
    terms.last = wide(nowUs + tokenCount - 1)
    terms.againWithinMs = againWithinMs ~= '0' and tonumber(againWithinMs)
    terms.bearer = ' ' .. now .. ' ' .. instance
  end
  if tickMs ~= '-' and tickMs ~= '' then
    terms.tickMs, terms.maxEarlyMs, terms.staleAfterMs = tonumber(tickMs), tonumber(maxEarlyMs), tonumber(staleAfterMs)
    terms.tick = wide(terms.tickMs)
  end
  return terms
end

local answers, known = {nowToken}, {}
local at = 3
for k = 1, #KEYS, 3 do
  local text = ARGV[at]
  local terms = known[text]
  if not terms then
    terms = termsFrom(text)
    known[text] = terms
  end
  answers[#answers + 1] = terms.run(k, ARGV[at + 1], terms)
  at = at + 2
end
return answers
`;

const SHA1 = createHash('sha1').update(LUA).digest('hex');

/** What it takes to run a script: part of every Redis and Cluster client of ioredis. */
export interface ScriptRunner {
  eval(script: string, keyCount: number, ...values: (string | number)[]): Promise<unknown>;
  evalsha(sha1: string, keyCount: number, ...values: (string | number)[]): Promise<unknown>;
}

/** One request to the script. */
export interface Call {
  readonly key: string;
  /** A verb of the script and what it needs to know. */
  readonly terms: string;
  /** Or the fencing token, for a release by force. */
  readonly holder: string;
}

/** What goes for all calls of a run. */
export interface Circumstances {
  /** The latest server time in µs at which an acquisition is still wanted; 0: any. */
  readonly notAfterUs: number;
  /** On which the asker hears calls. */
  readonly channel: string;
}

export interface Reply {
  readonly serverTimeUs: number;
  readonly answers: string[];
}

/**
 * Runs the calls as one. The server may have forgotten the script (restart, failover, SCRIPT FLUSH): then the text
 * itself is sent, which is safe even if the first attempt did run, as holders are unique.
 */
export async function runScript(
  runner: ScriptRunner,
  calls: readonly Call[],
  { notAfterUs, channel }: Circumstances,
): Promise<Reply> {
  const words: string[] = [];
  for (const { key } of calls) words.push(lockKeyOf(key), `{${key}}:line`, `{${key}}:waiting`);
  const keyCount = words.length;
  words.push(notAfterUs.toFixed(0), channel);
  for (const { terms, holder } of calls) words.push(terms, holder);
  const [serverTimeUs, ...answers] = (await runner
    .evalsha(SHA1, keyCount, ...words)
    .catch((error: unknown) => {
      if (!isScriptUnknown(error)) throw error;
      return runner.eval(LUA, keyCount, ...words);
    })) as [string, ...string[]];
  return { serverTimeUs: Number(serverTimeUs), answers };
}

const LOCK_SUFFIX = '}:lock';

const lockKeyOf = (key: string) => `{${key}${LOCK_SUFFIX}`;

/** The key and how soon it may be free, from what the script publishes. */
export function callFrom(message: string, keyPrefix: string): { key: string; inMs: number } {
  const at = message.indexOf(' ');
  const lockKey = message.slice(at + 1 + keyPrefix.length);
  return { inMs: Number(message.slice(0, at)), key: lockKey.slice(1, -LOCK_SUFFIX.length) };
}

const isScriptUnknown = (error: unknown) => (error as Error).message.startsWith('NOSCRIPT');
