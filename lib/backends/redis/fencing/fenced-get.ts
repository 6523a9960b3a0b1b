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

/**
 * In: the key and the key of its token; the token, and how many ms the token outlives the value.
 * Out: the stored token if it is newer (or no token at all), else nothing; then the value. The token is kept longer than
 * the value, without end beside a value without TTL, and never for a shorter time than before.
 * One step, so that no write comes in between.
 */
const SCRIPT = scriptOf(`
${TOKEN_CHECK.replaceAll('return newest', 'return {newest, false}')}
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
 * `client.getBuffer(key)`. Errors of Redis are not changed, such as WRONGTYPE for a key that is not a string.
 *
 * @returns the value as text; `null` if there is none
 * @throws LockLostError if a newer token has read or written the key, or, before anything is sent, if the lock is no longer
 *   valid; LockConfigError for wrong arguments, or if something else than a token is in the key of the token
 */
export async function fencedGet(client: Redis | Cluster, key: string, lock: Fence): Promise<string | null> {
  const token = validFencingTokenOf(lock);
  const errors = new OptionErrors();
  collectFencedErrors(errors, client, key);
  errors.throwIfAny('Wrong fencedGet()');
  const tokenKey = tokenKeyOf(key, client.options.keyPrefix ?? '');
  const values = [key, tokenKey, String(token), TOKEN_EXTRA_LIFETIME_MS];
  const [newest, value] = (await evaluate(client, SCRIPT, 2, values)) as [string | null, string | null];
  throwIfRefused(newest, { lock, key, tokenKey });
  return value;
}
