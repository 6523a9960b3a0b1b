import type { Cluster, Redis } from 'ioredis';
import { OptionErrors } from '../../../core/option-errors.js';
import { type Fence, validFencingTokenOf } from '../../../core/fence.js';
import { isClient } from '../source-options.js';
import { evaluate, scriptOf } from '../script-runner.js';
import { TOKEN_CHECK, TOKEN_EXTRA_LIFETIME_MS, throwIfRefused } from './fencing-script.js';
import { tokenKeyOf } from './token-key.js';

/**
 * In: the key and that of its token; the token, and for how many ms the token stays at least.
 * Out: what is there if it is no older token, or else nothing, and then the value. A token stays longer than its value,
 * for ever beside one that stays, and never shorter than it would have.
 * One step, so that nobody writes between the two.
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
 * `GET` under a lock, which writes the fencing token of the lock beside the key in the same step. From then on no older
 * token can write the key, so what you read stays true until you write it with `fencedSet` under the same lock, or that is
 * refused. One script on your own client, which is neither changed nor closed.
 *
 * ```ts
 * await locks.withLock('visits', async (lock) => {
 *   const visits = Number(await fencedGet(redis, 'visits', lock));
 *   await fencedSet(redis, 'visits', String(visits + 1), lock);
 * });
 * ```
 *
 * The token is kept as `fencedSet` describes; where there is no value it stays for a day. For bytes, call this first and
 * then `client.getBuffer(key)`. Errors of Redis pass as they are; a key that holds another type than a string is one.
 *
 * @returns the value as text; `null` if there is none
 * @throws LockLostError if a newer token has read or written there, or if the lock is no longer valid, before anything is
 *   sent; LockConfigError
 */
export async function fencedGet(client: Redis | Cluster, key: string, lock: Fence): Promise<string | null> {
  const token = validFencingTokenOf(lock);
  checkRequest({ client, key });
  const tokenKey = tokenKeyOf(key, client.options.keyPrefix ?? '');
  const values = [key, tokenKey, String(token), TOKEN_EXTRA_LIFETIME_MS];
  const [newest, value] = (await evaluate(client, SCRIPT, 2, values)) as [string | null, string | null];
  throwIfRefused(newest, { lock, key, tokenKey });
  return value;
}

/** @throws LockConfigError */
function checkRequest({ client, key }: Record<string, unknown>): void {
  const errors = new OptionErrors();
  errors.expect('client', client ?? null, 'a Redis or Cluster client of ioredis', isClient(client));
  errors.expect('key', key ?? null, 'a text that is not empty', typeof key === 'string' && key !== '');
  errors.throwIfAny('Wrong fencedGet()');
}
