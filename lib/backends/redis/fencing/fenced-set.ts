import type { Cluster, Redis } from 'ioredis';
import { type Fence, validFencingTokenOf } from '../../../core/fence.js';
import { OptionErrors } from '../../../core/option-errors.js';
import { evaluate, scriptOf } from '../script-runner.js';
import {
  TOKEN_CHECK,
  TOKEN_EXTRA_LIFETIME_MS,
  collectFencedErrors,
  throwIfRefused,
  tokenKeyOf,
} from './fencing-script.js';

export interface FencedSetOptions {
  /**
   * The time to live of the value, in ms.
   *
   * @default none: the value does not expire
   */
  ttlMs?: number;
}

/**
 * In: the key and the key of its token; the token, the value, and for how many ms to keep the value and the token ('': without
 * end).
 * Out: nothing, or the stored token if it is newer (or no token at all).
 * One step, so that no write comes in between.
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
 * The token is kept in a key of its own, `{key}:fencing-token`, on the same slot of a Cluster. It is kept as long as the value,
 * with `ttlMs` a day longer: a holder that slept for longer than that is no longer refused. Write the key only with this
 * function, and delete both keys together. Like `SET`, it replaces a value of any type. The same token may write again, so
 * you can repeat a write whose reply was lost. Errors of Redis are not changed.
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
  checkRequest({ client, key, value, options });
  const { ttlMs } = options;
  const tokenKey = tokenKeyOf(key, client.options.keyPrefix ?? '');
  const lifetimes = ttlMs === undefined ? ['', ''] : [String(ttlMs), String(ttlMs + TOKEN_EXTRA_LIFETIME_MS)];
  const values = [key, tokenKey, String(token), value, ...lifetimes];
  throwIfRefused((await evaluate(client, SCRIPT, 2, values)) as string | null, { lock, key, tokenKey });
}

/** @throws LockConfigError that names every wrong argument */
function checkRequest({ client, key, value, options }: Record<string, unknown>): void {
  const errors = new OptionErrors();
  collectFencedErrors(errors, client, key);
  const isValue = typeof value === 'string' || Buffer.isBuffer(value);
  errors.expect('value', value ?? null, 'a string or a Buffer', isValue);
  const { ttlMs } = errors.object('options', options, ['ttlMs']);
  errors.integerMs('options.ttlMs', ttlMs, { min: 1 });
  errors.throwIfAny('Wrong fencedSet()');
}
