import { setTimeout as sleep } from 'node:timers/promises';
import type { Contender, Held } from '../contender.js';
import { ACQUIRE, openPool, pg } from './plain-pg.js';
import { newOwner } from './polling.js';

const RELEASE = `
WITH freed AS (UPDATE plain SET expires_at = '-infinity' WHERE key = $1 AND owner = $2 RETURNING key)
SELECT pg_notify('freed', key) FROM freed`;

/** Where a notification came before its waiter listened for it. */
const LOOK_AGAIN_MS = 5_000;

/** A row with a lease whose release is told by NOTIFY; who hears of it asks again. */
export const all: readonly Contender[] = [
  {
    name: 'bare LISTEN/NOTIFY',
    store: 'postgres',
    kind: 'floor',
    only: ['B5'],
    async open({ leaseMs, stores }) {
      const pool = await openPool(stores.postgres);
      const listener = new pg.Client({ connectionString: stores.postgres });
      await listener.connect();
      const waiting = new Map<string, () => void>();
      listener.on('notification', ({ payload }) => waiting.get(payload)?.());
      await listener.query('LISTEN freed');
      const owner = newOwner();

      const acquire = async (key: string): Promise<Held> => {
        const me = owner();
        for (;;) {
          const released = new Promise<void>((resolve) => waiting.set(key, resolve));
          const { rowCount } = await pool.query({
            name: 'acquire',
            text: ACQUIRE,
            values: [key, me, leaseMs],
          });
          if (rowCount === 1) break;
          await Promise.race([released, sleep(LOOK_AGAIN_MS, undefined, { ref: false })]);
        }
        return { release: () => pool.query({ name: 'release', text: RELEASE, values: [key, me] }) };
      };
      return {
        acquire,
        close: () => Promise.all([listener.end(), pool.end()]),
      };
    },
  },
];
