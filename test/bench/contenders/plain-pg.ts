import { createRequire } from 'node:module';
import type { Contender } from '../contender.js';
import { newOwner, poll } from './polling.js';

/** What we use of `pg`, which has no types of its own. */
interface Pg {
  readonly Pool: new (options: { connectionString: string; max: number }) => Queries;
  readonly Client: new (options: { connectionString: string }) => PgClient;
}

interface Queries {
  query(statement: string | { name: string; text: string; values: unknown[] }): Promise<{ rowCount: number }>;
  end(): Promise<void>;
}

interface PgClient extends Queries {
  connect(): Promise<void>;
  on(event: 'notification', listener: (message: { payload: string }) => void): void;
}

export const pg = createRequire(import.meta.url)('pg') as Pg;

export const POOL_SIZE = 10;

/** IF NOT EXISTS alone fails when two processes create it at once. */
const TABLE = `
DO $$ BEGIN
  PERFORM pg_advisory_xact_lock(1);
  CREATE TABLE IF NOT EXISTS plain (key text PRIMARY KEY, owner text NOT NULL, expires_at timestamptz NOT NULL,
    version bigint NOT NULL DEFAULT 1);
END $$`;

/** In: key, owner, lease in ms. Out: one row, if it granted. */
export const ACQUIRE = `
INSERT INTO plain AS l (key, owner, expires_at) VALUES ($1, $2, now() + $3 * interval '1 ms')
ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at, version = l.version + 1
WHERE l.expires_at <= now() RETURNING version`;

const RELEASE = `UPDATE plain SET expires_at = '-infinity' WHERE key = $1 AND owner = $2`;

/** A pool whose connections are all open. */
export async function openPool(url: string): Promise<Queries> {
  const pool = new pg.Pool({ connectionString: url, max: POOL_SIZE });
  await Promise.all(Array.from({ length: POOL_SIZE }, () => pool.query('SELECT pg_sleep(0.01)')));
  await pool.query(TABLE);
  return pool;
}

export const all: readonly Contender[] = [
  {
    name: 'plain pg',
    store: 'postgres',
    kind: 'floor',
    async open({ leaseMs, waitMs, stores }) {
      const pool = await openPool(stores.postgres);
      const owner = newOwner();
      return {
        acquire: (key) =>
          poll(async () => {
            const me = owner();
            const values = [key, me, leaseMs];
            const { rowCount } = await pool.query({ name: 'acquire', text: ACQUIRE, values });
            if (rowCount !== 1) return undefined;
            return { release: () => pool.query({ name: 'release', text: RELEASE, values: [key, me] }) };
          }, waitMs),
        close: () => pool.end(),
      };
    },
  },
];
