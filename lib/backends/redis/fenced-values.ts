import type { Cluster, Redis } from 'ioredis';
import { LockConfigError } from '../../core/errors.js';
import { type Fence, staleTokenError, validFencingTokenOf } from '../../core/fence.js';
import { formatValue } from '../../core/format.js';
import { OptionErrors } from '../../core/option-errors.js';
import { type Script, type ScriptValue, evaluate, scriptOf } from './script-runner.js';
import { isClient } from './source-check.js';

/** How much longer than its value a token is kept, for holders that sleep. */
const TOKEN_EXTRA_LIFETIME_MS = 86_400_000;
const TOKEN_KEY_SUFFIX = ':fencing-token';

/**
 * How both scripts start. In: the key and the key of its token; the token. Out: the stored token if it is newer, or is no
 * token. Tokens are compared as text, because Lua numbers are not exact above 2^53.
 */
const TOKEN_CHECK = `
local token = ARGV[1]
local newest = redis.call('GET', KEYS[2])
if newest and not string.find(newest, '^%d+$') then return {newest, false} end
if newest and (#newest > #token or #newest == #token and newest > token) then return {newest, false} end`;

/**
 * In: after the token, how many ms it outlives the value.
 * Out: nothing, then the value. The token is kept longer than the value, without end beside a value without TTL, and never
 * for a shorter time than before.
 * One step, so that no write comes in between.
 */
const GET_SCRIPT = scriptOf(`
${TOKEN_CHECK}
local value = redis.call('GET', KEYS[1])
local valueMs = redis.call('PTTL', KEYS[1])
local leftMs = redis.call('PTTL', KEYS[2])
if valueMs == -1 or leftMs == -1 then
  redis.call('SET', KEYS[2], token)
else
  local tokenMs = math.max(math.max(valueMs, 0) + tonumber(ARGV[2]), leftMs)
  redis.call('SET', KEYS[2], token, 'PX', string.format('%.0f', tokenMs))
end
return {false, value}`);

/**
 * In: after the token, the value, and for how many ms to keep the value and the token ('': without end).
 * Out: nothing, twice.
 * One step, so that no write comes in between.
 */
const SET_SCRIPT = scriptOf(`
${TOKEN_CHECK}
local value, valueMs, tokenMs = ARGV[2], ARGV[3], ARGV[4]
if valueMs == '' then
  redis.call('SET', KEYS[2], token)
  redis.call('SET', KEYS[1], value)
else
  redis.call('SET', KEYS[2], token, 'PX', tokenMs)
  redis.call('SET', KEYS[1], value, 'PX', valueMs)
end
return {false, false}`);

/**
 * `GET` under a lock. In the same step it stores the fencing token of the lock beside the key. From then on no older token
 * can write the key. So what you read is still true when you write the key with `fencedSet` under the same lock, or that
 * write is refused. It runs one script on your own client, which is neither changed nor closed.
 *
 * ```ts
 * await locks.withLock('visits', async (lock) => {
 *   const visits = Number(await fencedGet(redis, 'visits', lock));
 *   await fencedSet(redis, 'visits', String(visits + 1), lock);
 * });
 * ```
 *
 * The token is kept as described at `fencedSet`; without a value, for a day. For binary data, call this first and then
 * `client.getBuffer(key)`, on a client that reads from primaries: not on a Cluster client with `scaleReads`. Errors of Redis are
 * not changed, such as WRONGTYPE for a key that is not a string.
 *
 * @returns the value as text; `null` if there is none
 * @throws LockLostError if a newer token has read or written the key, or, before anything is sent, if the lock is no longer
 *   valid; LockConfigError for wrong arguments, or if something else than a token is in the key of the token
 */
export async function fencedGet(client: Redis | Cluster, key: string, lock: Fence): Promise<string | null> {
  const token = validFencingTokenOf(lock);
  collectClientErrors(client, key).throwIfAny('Wrong fencedGet()');
  return runFenced({
    client,
    key,
    lock,
    script: GET_SCRIPT,
    values: [String(token), TOKEN_EXTRA_LIFETIME_MS],
  });
}

export interface FencedSetOptions {
  /**
   * The time to live of the value, in ms.
   *
   * @default none: the value does not expire
   */
  ttlMs?: number;
}

/**
 * `SET` that is refused if a newer fencing token has read or written the key. So a holder that slept through its lease cannot
 * overwrite what the next holder wrote. It runs one script on your own client, which is neither changed nor closed. Read the
 * key with `fencedGet` under the same lock: a value from a plain `GET` may be out of date, and no token detects that.
 *
 * ```ts
 * await locks.withLock('visits', async (lock) => {
 *   const visits = Number(await fencedGet(redis, 'visits', lock));
 *   await fencedSet(redis, 'visits', String(visits + 1), lock);
 * });
 * ```
 *
 * The token is kept in a key of its own, `key{key}:fencing-token` (`key:fencing-token` if the key has a hash tag), on the same
 * slot of a Cluster. It is kept as long as the value, with `ttlMs` a day longer: a holder that slept for longer than that is no
 * longer refused. Write the key only with this function. To delete the value, delete only its own key: without the token, a late
 * write of an older lock would be accepted. Like `SET`, it replaces a value of any type. The same token may write again, so you
 * can repeat a write whose reply was lost. Errors of Redis are not changed.
 *
 * @throws LockLostError if a newer token has read or written the key, or, before anything is sent, if the lock is no longer
 *   valid; LockConfigError for wrong arguments, or if something else than a token is in the key of the token
 */
export async function fencedSet(
  client: Redis | Cluster,
  key: string,
  value: string | Buffer,
  lock: Fence,
  options: FencedSetOptions = {},
): Promise<void> {
  const token = validFencingTokenOf(lock);
  const errors = collectClientErrors(client, key);
  const given: unknown = value;
  const isValue = typeof given === 'string' || Buffer.isBuffer(given);
  errors.expect('value', given ?? null, 'a string or a Buffer', isValue);
  errors.integerMs('options.ttlMs', errors.object('options', options, ['ttlMs']).ttlMs, { min: 1 });
  errors.throwIfAny('Wrong fencedSet()');
  const { ttlMs } = options;
  const lifetimes = ttlMs === undefined ? ['', ''] : [ttlMs, ttlMs + TOKEN_EXTRA_LIFETIME_MS];
  await runFenced({ client, key, lock, script: SET_SCRIPT, values: [String(token), value, ...lifetimes] });
}

/** Collects what is wrong with the arguments that both functions have. */
function collectClientErrors(client: unknown, key: unknown): OptionErrors {
  const errors = new OptionErrors();
  errors.expect('client', client ?? null, 'a Redis or Cluster client of ioredis', isClient(client));
  errors.expect('key', key ?? null, 'a string that is not empty', typeof key === 'string' && key !== '');
  return errors;
}

interface FencedCall {
  readonly client: Redis | Cluster;
  readonly key: string;
  readonly lock: Fence;
  readonly script: Script;
  readonly values: readonly ScriptValue[];
}

/** @throws LockLostError if the script found a newer token; LockConfigError if it found something that is no token */
async function runFenced({ client, key, lock, script, values }: FencedCall): Promise<string | null> {
  const tokenKey = tokenKeyOf(key, client.options.keyPrefix ?? '');
  const reply = await evaluate(client, script, 2, [key, tokenKey, ...values]);
  const [newest, value] = reply as [newest: string | null, value: string | null];
  if (newest === null) return value;
  if (/^\d+$/.test(newest)) throw staleTokenError(lock, `the key '${key}'`, BigInt(newest));
  throw new LockConfigError(`Expected a fencing token in '${tokenKey}', got ${formatValue(newest)}.`, {
    key,
  });
}

/**
 * The key for the fencing token of a key, on the same slot of a Cluster. Both keys are without the prefix of ioredis, which
 * it adds to each. The token key begins with the key, so that clients with and without a prefix use the same one for one key of
 * the store.
 *
 * @throws LockConfigError if there is no such key on the same slot
 */
export function tokenKeyOf(key: string, keyPrefix: string): string {
  const fullKey = keyPrefix + key;
  const tokenKey =
    hashTagOf(fullKey) === fullKey ? `${key}{${fullKey}}${TOKEN_KEY_SUFFIX}` : `${key}${TOKEN_KEY_SUFFIX}`;
  if (hashTagOf(keyPrefix + tokenKey) === hashTagOf(fullKey)) return tokenKey;
  throw new LockConfigError(
    `Expected a key whose fencing token can be on the same slot of a Cluster, got '${fullKey}'. Give it a hash tag, such as '{${key.replace(/[{}]/g, '')}}'.`,
    { key },
  );
}

/** The part of a key that decides its slot: between the first `{` and the next `}`, or else the whole key. */
const hashTagOf = (key: string) => /^[^{]*\{([^}]+)\}/.exec(key)?.[1] ?? key;
