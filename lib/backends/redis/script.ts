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
 *   for each request its verb and the verb's values.
 * - Out: the server's time in µs, then a text for each request.
 * - Numbers cross as text: Lua prints large ones with an exponent. Time is the server's alone.
 *
 * A lock is the text `last tick line;holder token until since instance`: the last fencing token given out, the newest
 * claimed tick, whether somebody may stand in line, and, while it is held, by whom. Token 0 means that it is kept for the
 * one whose turn it is. The text stays when the lock is free, as the memory of its fencing token.
 */
const LUA = `
local clock = redis.call('TIME')
local nowUs = clock[1] * 1000000 + clock[2]
local nowMs = math.floor(nowUs / 1000)
local notAfterUs, channel = tonumber(ARGV[1]), ARGV[2]
local match, format = string.match, string.format
local function text(number) return format('%.0f', number) end

local locks, lockKeys = {}, {}
for i = 1, #KEYS, 3 do lockKeys[#lockKeys + 1] = KEYS[i] end
local found = redis.call('MGET', unpack(lockKeys))
for i = 1, #lockKeys do locks[lockKeys[i]] = found[i] end

local function read(k)
  local lock = locks[KEYS[k]]
  if not lock then return '0', '', '0' end
  local last, tick, line, grant = match(lock, '^(%d+) (%-?%d*) (%d);(.*)$')
  if grant == '' then return last, tick, line end
  local holder, token, untilMs, rest = match(grant, '^(%S+) (%d+) (%d+) (.*)$')
  untilMs = tonumber(untilMs)
  if untilMs <= nowMs then return last, tick, line end
  return last, tick, line, holder, token, untilMs, rest
end

local function write(k, last, tick, line, grant, leaseMs)
  local lock = last .. ' ' .. tick .. ' ' .. line .. ';' .. grant
  locks[KEYS[k]] = lock
  if leaseMs then
    local memoryMs = tick == '' and ${TOKEN_MEMORY_MS} or ${TICK_MEMORY_MS}
    redis.call('SET', KEYS[k], lock, 'PX', text(leaseMs + memoryMs))
  else
    redis.call('SET', KEYS[k], lock, 'KEEPTTL')
  end
end

local function grantText(holder, token, untilMs, rest)
  return holder .. ' ' .. token .. ' ' .. text(untilMs) .. ' ' .. rest
end

local function leave(k, holder)
  redis.call('ZREM', KEYS[k + 1], holder)
  redis.call('HDEL', KEYS[k + 2], holder)
end

-- Who stands first, and on which channel to call. Those who have not asked again in time are sent away.
local function first(k)
  while true do
    local holder = redis.call('ZRANGE', KEYS[k + 1], 0, 0)[1]
    if not holder then return end
    local untilMs, itsChannel = match(redis.call('HGET', KEYS[k + 2], holder) or '0 ', '^(%d+) (.*)$')
    if tonumber(untilMs) >= nowMs then return holder, itsChannel end
    leave(k, holder)
  end
end

local function stand(k, holder, againWithinMs)
  redis.call('ZADD', KEYS[k + 1], 'NX', text(nowUs), holder)
  redis.call('HSET', KEYS[k + 2], holder, text(nowMs + againWithinMs) .. ' ' .. channel)
  redis.call('PEXPIRE', KEYS[k + 1], againWithinMs * 2)
  redis.call('PEXPIRE', KEYS[k + 2], againWithinMs * 2)
end

-- The lock is free: keeps it for the first in line and calls him, and the next one for the case that he does not come.
local function handOver(k, last, tick, line)
  local holder, itsChannel
  if line == '1' then holder, itsChannel = first(k) end
  if not holder then return write(k, last, tick, '0', '') end
  leave(k, holder)
  local deputy, deputysChannel = first(k)
  write(k, last, tick, deputy and '1' or '0', grantText(holder, '0', nowMs + ${CLAIM_WINDOW_MS}, text(nowMs) .. ' '))
  redis.pcall('PUBLISH', itsChannel, '0 ' .. KEYS[k])
  if deputy then redis.pcall('PUBLISH', deputysChannel, '${DEPUTY_DELAY_MS} ' .. KEYS[k]) end
end

local verbs = {}

function verbs.acquire(k, holder, leaseMs, instance, tokenCount, againWithinMs, tickMs, maxEarlyMs, staleAfterMs)
  if notAfterUs > 0 and nowUs > notAfterUs then return 'late' end
  leaseMs, againWithinMs = tonumber(leaseMs), tonumber(againWithinMs)
  local last, tick, line, present, token, untilMs, rest = read(k)
  if present == holder and token ~= '0' then
    write(k, last, tick, line, grantText(holder, token, nowMs + leaseMs, rest), leaseMs)
    return 'granted ' .. token
  end
  if tickMs ~= '' then
    local aheadMs = tonumber(tickMs) - nowMs
    if tick ~= '' and tonumber(tickMs) <= tonumber(tick) then return 'refused claimed ' .. text(aheadMs) end
    if aheadMs > tonumber(maxEarlyMs) then return 'refused early ' .. text(aheadMs) end
    if -aheadMs > tonumber(staleAfterMs) then return 'refused stale ' .. text(aheadMs) end
    tick = tickMs
  end
  local isFirst = present == holder
  if not present then
    local head
    if line == '1' then head = first(k) end
    isFirst = not head or head == holder
    if head == holder then leave(k, holder) end
  end
  if not isFirst then
    if againWithinMs > 0 then stand(k, holder, againWithinMs) end
    if not present then
      handOver(k, last, tick, '1')
      untilMs = nowMs + ${CLAIM_WINDOW_MS}
    elseif againWithinMs > 0 and line == '0' then
      write(k, last, tick, '1', grantText(present, token, untilMs, rest))
    end
    return 'taken ' .. text(untilMs - nowMs) .. (againWithinMs > 0 and ' inLine' or '')
  end
  local newToken = math.max(tonumber(last) + 1, nowUs)
  token = text(newToken)
  line = line == '1' and redis.call('EXISTS', KEYS[k + 1]) == 1 and '1' or '0'
  write(k, text(newToken + tokenCount - 1), tick, line,
    grantText(holder, token, nowMs + leaseMs, text(nowMs) .. ' ' .. instance), leaseMs)
  return 'granted ' .. token
end

function verbs.renew(k, holder, leaseMs)
  local last, tick, line, present, token, untilMs, rest = read(k)
  if present ~= holder or token == '0' then return 'lost' end
  leaseMs = tonumber(leaseMs)
  if nowMs + leaseMs > untilMs then
    write(k, last, tick, line, grantText(holder, token, nowMs + leaseMs, rest), leaseMs)
  end
  return 'renewed'
end

function verbs.release(k, holder)
  local last, tick, line, present, token = read(k)
  if present == holder then
    handOver(k, last, tick, line)
    return token == '0' and 'gone' or 'released'
  end
  if line == '1' then leave(k, holder) end
  return 'gone'
end

function verbs.forceRelease(k, wanted)
  local last, tick, line, present, token = read(k)
  wanted = tonumber(wanted)
  if not present or token == '0' or wanted < tonumber(token) or wanted > tonumber(last) then return 'gone' end
  handOver(k, last, tick, line)
  return 'released'
end

function verbs.inspect(k)
  local last, tick, line, present, token, untilMs, rest = read(k)
  if not present or token == '0' then return 'free' end
  return 'held ' .. present .. ' ' .. token .. ' ' .. text(untilMs - nowMs) .. ' ' .. rest
end

local counts = {acquire = 8, renew = 2, release = 1, forceRelease = 1, inspect = 0}
local answers = {text(nowUs)}
local at = 3
for k = 1, #KEYS, 3 do
  local verb = ARGV[at]
  answers[#answers + 1] = verbs[verb](k, unpack(ARGV, at + 1, at + counts[verb]))
  at = at + 1 + counts[verb]
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
  readonly verb: 'acquire' | 'renew' | 'release' | 'forceRelease' | 'inspect';
  readonly values: readonly string[];
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
  readonly answers: readonly string[];
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
  for (const { verb, values } of calls) words.push(verb, ...values);
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
