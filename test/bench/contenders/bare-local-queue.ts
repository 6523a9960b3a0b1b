import { createHash } from 'node:crypto';
import { Redis } from 'ioredis';
import type { Contender, Held } from '../contender.js';
import { newOwner, poll } from './polling.js';

const RELEASE = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end`;
const releaseSha = createHash('sha1').update(RELEASE).digest('hex');

const HELD: Held = { release: () => undefined };

/**
 * A process that keeps the lock of the store until nobody of its own callers waits: the fastest way to serve a crowd, unfair to
 * all other processes.
 */
export const all: readonly Contender[] = [
  {
    name: 'bare local queue',
    store: 'redis',
    kind: 'floor',
    commands: ['set', 'evalsha'],
    only: ['B3'],
    async open({ leaseMs, waitMs, stores }) {
      const client = new Redis(stores.redis);
      await client.script('LOAD', RELEASE);
      const me = newOwner()();
      /** The callers of this process that wait, by key. A key is held while it has a list. */
      const waiting = new Map<string, (() => void)[]>();
      const tryStore = async (key: string) =>
        (await client.set(key, me, 'PX', leaseMs, 'NX')) === 'OK' ? HELD : undefined;

      const acquire = async (key: string): Promise<Held> => {
        const others = waiting.get(key);
        if (others) await new Promise<void>((resolve) => others.push(resolve));
        else {
          waiting.set(key, []);
          await poll(() => tryStore(key), waitMs);
        }
        return {
          release() {
            const next = waiting.get(key)?.shift();
            if (!next) {
              waiting.delete(key);
              return client.evalsha(releaseSha, 1, key, me);
            }
            next();
            return undefined;
          },
        };
      };
      return { acquire, close: async () => client.disconnect() };
    },
  },
];
