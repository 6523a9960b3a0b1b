import type { Cluster, Redis } from 'ioredis';
import { LockConfigError } from '../../../core/errors.js';
import { Faults } from '../../../core/faults.js';
import { type Fence, fencedOut, fencingTokenOf } from '../../../core/fence.js';
import { shown } from '../../../core/shown.js';
import { isClient } from '../check-redis-source.js';
import { evaluate, scriptOf } from '../script-runner.js';
import { tokenKeyOf } from './token-key.js';

export interface FencedSetOptions {
  /**
   * The value goes by itself after so long, in ms.
   *
   * @default it stays
   */
  ttlMs?: number;
}

/** So much longer than its value a token stays, for holders that sleep. */
const TOKEN_OUTLIVES_MS = 86_400_000;

/**
 * In: the key and that of its token; the token, the value, and for how many ms to keep the value and the token ('' for ever).
 * Out: nothing, or what is there if it is no older token. Tokens are compared as text, since numbers are not exact beyond 2^53.
 * One step, so that nobody writes between look and write.
 */
const SCRIPT = scriptOf(`
local token, value, valueMs, tokenMs = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local newest = redis.call('GET', KEYS[2])
if newest and not string.find(newest, '^%d+$') then return newest end
if newest and (#newest > #token or #newest == #token and newest > token) then return newest end
if valueMs == '' then
  redis.call('SET', KEYS[2], token)
  redis.call('SET', KEYS[1], value)
else
  redis.call('SET', KEYS[2], token, 'PX', tokenMs)
  redis.call('SET', KEYS[1], value, 'PX', valueMs)
end
return false`);

/**
 * `SET` that refuses whoever comes with an older fencing token than the newest that has written the key: a holder that
 * slept through its lease writes nothing over what the next one wrote. One script on your own client, which is neither
 * changed nor closed; read the key as always.
 *
 * ```ts
 * await locks.withLock('report', async (lock) => {
 *   await fencedSet(redis, 'report:latest', await build(), lock, { ttlMs: 3_600_000 });
 * });
 * ```
 *
 * The token lies in a key of its own, `{key}:fencing-token`, on the same slot of a Cluster. It stays as long as the value,
 * and where that has a `ttlMs`, a day longer: who slept for longer than that is no longer refused. Write the key in this
 * way alone, and delete the two together. As with `SET`, what was there before is replaced, whatever its type. The same
 * token may write again, so a write whose answer was lost can be repeated. Errors of Redis pass as they are.
 *
 * @throws LockLostError if a newer token has written there; LockConfigError
 */
export async function fencedSet(
  client: Redis | Cluster,
  key: string,
  value: string | Buffer,
  lock: Fence,
  options: FencedSetOptions = {},
): Promise<void> {
  const token = fencingTokenOf(lock);
  checkRequest({ client, key, value, options });
  const { ttlMs } = options;
  const tokenKey = tokenKeyOf(key, client.options.keyPrefix ?? '');
  const lasts = ttlMs === undefined ? ['', ''] : [String(ttlMs), String(ttlMs + TOKEN_OUTLIVES_MS)];
  const words = [key, tokenKey, String(token), value, ...lasts];
  const newest = (await evaluate(client, SCRIPT, 2, words)) as string | null;
  if (newest === null) return;
  if (!/^\d+$/.test(newest)) {
    throw new LockConfigError(`Expected a fencing token in '${tokenKey}', got ${shown(newest)}.`, { key });
  }
  throw fencedOut(lock, `the key '${key}'`, BigInt(newest));
}

/** @throws LockConfigError */
function checkRequest({ client, key, value, options }: Record<string, unknown>): void {
  const faults = new Faults();
  faults.expect('client', client ?? null, 'a Redis or Cluster client of ioredis', isClient(client));
  faults.expect('key', key ?? null, 'a text that is not empty', typeof key === 'string' && key !== '');
  const isValue = typeof value === 'string' || Buffer.isBuffer(value);
  faults.expect('value', value ?? null, 'a string or a Buffer', isValue);
  const { ttlMs } = faults.object('options', options, ['ttlMs']);
  faults.wholeMs('options.ttlMs', ttlMs, { min: 1 });
  faults.throwIfAny('Wrong fencedSet()');
}
