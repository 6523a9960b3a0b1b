import { createHash } from 'node:crypto';
import { Redis } from 'ioredis';
import type { Contender, Held } from '../contender.js';
import { newOwner } from './polling.js';

// In: the lock and its line; owner, lease in ms. Out: 1 if granted, 0 if the owner now stands in line.
const ACQUIRE = `
if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
redis.call('rpush', KEYS[2], ARGV[1])
return 0`;

// In: as above. Gives the lock to the first in line and tells it to that owner's process, in one step.
const RELEASE = `
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
local owner = redis.call('lpop', KEYS[2])
if not owner then return redis.call('del', KEYS[1]) end
redis.call('set', KEYS[1], owner, 'PX', ARGV[2])
redis.call('publish', 'grant:' .. string.sub(owner, 1, 18), owner)
return 1`;

const sha = (script: string) => createHash('sha1').update(script).digest('hex');

/** A lock that is handed on by the server and published to the next: the fastest hand-off, blind to the dead. */
export const all: readonly Contender[] = [
  {
    name: 'bare grant by publish',
    store: 'redis',
    kind: 'floor',
    commands: ['evalsha'],
    only: ['B5'],
    async open({ leaseMs, stores }) {
      const [client, listener] = [new Redis(stores.redis), new Redis(stores.redis)];
      const owner = newOwner();
      const waiting = new Map<string, () => void>();
      listener.on('message', (_channel, granted) => waiting.get(granted)?.());
      await listener.subscribe(`grant:${owner().slice(0, 18)}`);
      await Promise.all([ACQUIRE, RELEASE].map((script) => client.script('LOAD', script)));

      const run = (script: string, key: string, me: string) =>
        client.evalsha(sha(script), 2, key, `line:${key}`, me, leaseMs);
      const acquire = async (key: string): Promise<Held> => {
        const me = owner();
        const granted = new Promise<void>((resolve) => waiting.set(me, resolve));
        if ((await run(ACQUIRE, key, me)) !== 1) await granted;
        waiting.delete(me);
        return { release: () => run(RELEASE, key, me) };
      };
      return {
        acquire,
        close: async () => [client, listener].forEach((connection) => connection.disconnect()),
      };
    },
  },
];
