import { createHash } from 'node:crypto';

/** How long a fencing token is remembered after its grant; see docs/decisions.md for why an hour is enough. */
const TOKEN_MEMORY_MS = 60 * 60 * 1_000;
/** How long the newest claimed tick of a job is remembered: longer than any two of its ticks are apart. */
const TICK_MEMORY_MS = 400 * 24 * 60 * 60 * 1_000;

/**
 * One script for everything, so that any number of requests goes to the server in one call and takes effect in one
 * step: nobody sees a key between the check and the change.
 *
 * - In: for each request two KEYS, the grant and the memory of the key. ARGV: the latest server time in µs at which
 *   an acquisition is still wanted (0: any), then for each request its verb and the verb's values.
 * - Out: the server's time in µs, then an array for each request.
 * - Numbers cross as text: Lua prints large ones with an exponent. Time is the server's alone.
 */
const LUA = `
local clock = redis.call('TIME')
local nowUs = clock[1] * 1000000 + clock[2]
local nowMs = math.floor(nowUs / 1000)
local notAfterUs = tonumber(ARGV[1])
local function text(number) return string.format('%.0f', number) end

local verbs = {}

function verbs.acquire(grant, memory, holder, leaseMs, instance, tickMs, maxEarlyMs, staleAfterMs)
  if notAfterUs > 0 and nowUs > notAfterUs then return {'late'} end
  local present = redis.call('HMGET', grant, 'holder', 'token')
  if present[1] == holder then
    redis.call('PEXPIRE', grant, leaseMs)
    return {'granted', present[2]}
  end
  local known = redis.call('HMGET', memory, 'token', 'tick')
  if tickMs ~= '' then
    local aheadMs = tonumber(tickMs) - nowMs
    if known[2] and tonumber(tickMs) <= tonumber(known[2]) then return {'refused', 'claimed', text(aheadMs)} end
    if aheadMs > tonumber(maxEarlyMs) then return {'refused', 'early', text(aheadMs)} end
    if -aheadMs > tonumber(staleAfterMs) then return {'refused', 'stale', text(aheadMs)} end
  end
  if present[1] then return {'taken', text(redis.call('PTTL', grant))} end
  local token = math.max(tonumber(known[1] or '0') + 1, nowUs)
  redis.call('HSET', memory, 'token', text(token))
  if tickMs ~= '' then redis.call('HSET', memory, 'tick', tickMs) end
  redis.call('PEXPIRE', memory, tickMs == '' and ${TOKEN_MEMORY_MS} or ${TICK_MEMORY_MS})
  redis.call('HSET', grant, 'holder', holder, 'token', text(token), 'instance', instance, 'since', text(nowMs))
  redis.call('PEXPIRE', grant, leaseMs)
  return {'granted', text(token)}
end

function verbs.renew(grant, memory, holder, leaseMs)
  if redis.call('HGET', grant, 'holder') ~= holder then return {'lost'} end
  if redis.call('PTTL', grant) < tonumber(leaseMs) then redis.call('PEXPIRE', grant, leaseMs) end
  return {'renewed'}
end

function verbs.release(grant, memory, holder)
  if redis.call('HGET', grant, 'holder') ~= holder then return {'gone'} end
  redis.call('DEL', grant)
  return {'released'}
end

function verbs.forceRelease(grant, memory, token)
  if redis.call('HGET', grant, 'token') ~= token then return {'gone'} end
  redis.call('DEL', grant)
  return {'released'}
end

function verbs.inspect(grant)
  local seen = redis.call('HMGET', grant, 'holder', 'instance', 'token', 'since')
  if not seen[1] then return {'free'} end
  return {'held', seen[1], seen[2], seen[3], seen[4], text(redis.call('PTTL', grant))}
end

local values = {acquire = 6, renew = 2, release = 1, forceRelease = 1, inspect = 0}
local answers = {text(nowUs)}
local at = 2
for i = 1, #KEYS, 2 do
  local verb = ARGV[at]
  answers[#answers + 1] = verbs[verb](KEYS[i], KEYS[i + 1], unpack(ARGV, at + 1, at + values[verb]))
  at = at + 1 + values[verb]
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

export interface Reply {
  readonly serverTimeUs: number;
  readonly answers: readonly (readonly string[])[];
}

/**
 * Runs the calls as one. The server may have forgotten the script (restart, failover, SCRIPT FLUSH): then the text
 * itself is sent, which is safe even if the first attempt did run, as holders are unique.
 */
export async function runScript(
  runner: ScriptRunner,
  calls: readonly Call[],
  notAfterUs: number,
): Promise<Reply> {
  const keys = calls.flatMap(({ key }) => [`{${key}}:grant`, `{${key}}:memory`]);
  const values = [notAfterUs.toFixed(0), ...calls.flatMap(({ verb, values }) => [verb, ...values])];
  const [serverTimeUs, ...answers] = (await runner
    .evalsha(SHA1, keys.length, ...keys, ...values)
    .catch((error: unknown) => {
      if (!isScriptUnknown(error)) throw error;
      return runner.eval(LUA, keys.length, ...keys, ...values);
    })) as [string, ...string[][]];
  return { serverTimeUs: Number(serverTimeUs), answers };
}

const isScriptUnknown = (error: unknown) => (error as Error).message.startsWith('NOSCRIPT');
