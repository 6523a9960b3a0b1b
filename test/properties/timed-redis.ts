import { createHash } from 'node:crypto';
import { Redis } from 'ioredis';
import { LOCK_SCRIPT } from '../../lib/backends/redis/single/lock-script.js';

const CLOCK = `local clock = call('TIME')
local nowUs = clock[1] * 1000000 + clock[2]`;
/** Behind all that the script reads by itself. */
const TIMED = LOCK_SCRIPT.replace(CLOCK, () => 'local nowUs = tonumber(ARGV[#ARGV])');
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
      // No request is too late in a time that jumps.
      args[keyCount] = '0';
      return evalsha(SHA1, keyCount, ...args, nowUs().toFixed(0));
    },
    duplicate: (...override: Parameters<typeof duplicate>) => withTime(duplicate(...override), nowUs),
  });
}
