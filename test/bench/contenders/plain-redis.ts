import { createHash } from 'node:crypto';
import { Redis } from 'ioredis';
import type { Contender } from '../contender.js';
import { newOwner, poll } from './polling.js';

const RELEASE = `
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
return 0`;
const releaseSha = createHash('sha1').update(RELEASE).digest('hex');

export const all: readonly Contender[] = [
  {
    name: 'plain ioredis',
    store: 'redis',
    kind: 'floor',
    commands: ['set', 'evalsha'],
    async open({ leaseMs, waitMs, stores }) {
      const client = new Redis(stores.redis);
      await client.script('LOAD', RELEASE);
      const owner = newOwner();
      return {
        acquire: (key) =>
          poll(async () => {
            const me = owner();
            if ((await client.set(key, me, 'PX', leaseMs, 'NX')) !== 'OK') return undefined;
            return { release: () => client.evalsha(releaseSha, 1, key, me) };
          }, waitMs),
        close: async () => client.disconnect(),
      };
    },
  },
];
