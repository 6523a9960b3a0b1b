import { createHash } from 'node:crypto';
import { Redis } from 'ioredis';
import { lockScript } from '../../lib/backends/redis/single/lock-script.js';
import { DEFAULT_TOKEN_MEMORY_MS } from '../../lib/core/token-memory-options.js';

const LOCK_SCRIPT = lockScript(DEFAULT_TOKEN_MEMORY_MS);
const CLOCK = `call('TIME')`;
/** The lock script with a time in µs as last of ARGV, behind all that it reads by itself. */
export const TIMED = LOCK_SCRIPT.replace(
  CLOCK,
  () => '{sub(ARGV[#ARGV], 1, 10), sub(ARGV[#ARGV], 11)} args[#args] = nil',
);
const SHA1 = createHash('sha1').update(TIMED).digest('hex');

/** A client of a real Redis on which the script of the backend finds the time that the test gives it, and no other. */
export async function timedRedis(url: string, nowUs: () => number): Promise<Redis> {
  if (TIMED === LOCK_SCRIPT) throw new Error('Expected the script to look at the clock in one place.');
  const loader = new Redis(url);
  await loader.script('LOAD', TIMED);
  await loader.quit();
  return withTime(new Redis(url, { lazyConnect: true }), nowUs);
}

function withTime(client: Redis, nowUs: () => number): Redis {
  const evalsha = client.evalsha.bind(client) as (...all: unknown[]) => Promise<unknown>;
  const duplicate = client.duplicate.bind(client);
  return Object.assign(client, {
    evalsha: (_sha1: string, keyCount: number, ...args: unknown[]) => {
      // No request is too late in a time that jumps. A lone release has no header with the latest time.
      if (args.length > keyCount + 1) args[keyCount] = '9'.repeat(16) + String(args[keyCount]).slice(16);
      return evalsha(SHA1, keyCount, ...args, nowUs().toFixed(0));
    },
    duplicate: (...override: Parameters<typeof duplicate>) => withTime(duplicate(...override), nowUs),
  });
}
