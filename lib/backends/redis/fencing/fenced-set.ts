import type { Cluster, Redis } from 'ioredis';
import { OptionErrors } from '../../../core/option-errors.js';
import { type Fence, validFencingTokenOf } from '../../../core/fence.js';
import { isClient } from '../source-options.js';
import { evaluate, scriptOf } from '../script-runner.js';
import { TOKEN_CHECK, TOKEN_EXTRA_LIFETIME_MS, throwIfRefused } from './fencing-script.js';
import { tokenKeyOf } from './token-key.js';

export interface FencedSetOptions {
  /**
   * The value goes by itself after so long, in ms.
   *
   * @default it stays
   */
  ttlMs?: number;
}

/**
 * In: the key and that of its token; the token, the value, and for how many ms to keep the value and the token ('' for ever).
 * Out: nothing, or what is there if it is no older token. One step, so that nobody writes between look and write.
 */
const SCRIPT = scriptOf(`
${TOKEN_CHECK}
local value, valueMs, tokenMs = ARGV[2], ARGV[3], ARGV[4]
if valueMs == '' then
  redis.call('SET', KEYS[2], token)
  redis.call('SET', KEYS[1], value)
else
  redis.call('SET', KEYS[2], token, 'PX', tokenMs)
  redis.call('SET', KEYS[1], value, 'PX', valueMs)
end
return false`);

/**
 * `SET` that refuses an older fencing token than the newest that has read or written the key: a holder that slept through
 * its lease writes nothing over what the next one wrote. One script on your own client, which is neither changed nor
 * closed. Read the key through `fencedGet` under the same lock: a value that comes from a plain `GET` may be out of date,
 * and no token shows it.
 *
 * ```ts
 * await locks.withLock('visits', async (lock) => {
 *   const visits = Number(await fencedGet(redis, 'visits', lock));
 *   await fencedSet(redis, 'visits', String(visits + 1), lock);
 * });
 * ```
 *
 * The token is kept in a key of its own, `{key}:fencing-token`, on the same slot of a Cluster. It stays as long as the value,
 * and where that has a `ttlMs`, a day longer: a holder that slept for longer than that is no longer refused. Write the key
 * in this way alone, and delete the two together. As with `SET`, what was there before is replaced, whatever its type. The
 * same token may write again, so a write whose answer was lost can be repeated. Errors of Redis pass as they are.
 *
 * @throws LockLostError if a newer token has read or written there, or if the lock is no longer valid, before anything is
 *   sent; LockConfigError
 */
export async function fencedSet(
  client: Redis | Cluster,
  key: string,
  value: string | Buffer,
  lock: Fence,
  options: FencedSetOptions = {},
): Promise<void> {
  const token = validFencingTokenOf(lock);
  checkRequest({ client, key, value, options });
  const { ttlMs } = options;
  const tokenKey = tokenKeyOf(key, client.options.keyPrefix ?? '');
  const lifetimes = ttlMs === undefined ? ['', ''] : [String(ttlMs), String(ttlMs + TOKEN_EXTRA_LIFETIME_MS)];
  const values = [key, tokenKey, String(token), value, ...lifetimes];
  throwIfRefused((await evaluate(client, SCRIPT, 2, values)) as string | null, { lock, key, tokenKey });
}

/** @throws LockConfigError */
function checkRequest({ client, key, value, options }: Record<string, unknown>): void {
  const errors = new OptionErrors();
  errors.expect('client', client ?? null, 'a Redis or Cluster client of ioredis', isClient(client));
  errors.expect('key', key ?? null, 'a text that is not empty', typeof key === 'string' && key !== '');
  const isValue = typeof value === 'string' || Buffer.isBuffer(value);
  errors.expect('value', value ?? null, 'a string or a Buffer', isValue);
  const { ttlMs } = errors.object('options', options, ['ttlMs']);
  errors.integerMs('options.ttlMs', ttlMs, { min: 1 });
  errors.throwIfAny('Wrong fencedSet()');
}
