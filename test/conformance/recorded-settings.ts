import { randomUUID } from 'node:crypto';
import { DataSource } from 'typeorm';
import type { AcquireRequest, LockBackend } from '../../lib/core/backend.js';
import type { TickClaim } from '../../lib/core/tick.js';

const LIMIT_MS = 20_000;

interface Place {
  /** Of the database, not of a pooler in front of it. */
  readonly url: string;
  readonly table: string;
}

interface Settings {
  readonly isolation: string;
  readonly durable: string;
}

const tick: TickClaim = {
  tickMs: Date.now(),
  maxEarlyMs: 3_600_000,
  staleAfterMs: 3_600_000,
  maxAttempts: 2,
};

const request = (more: Partial<AcquireRequest> = {}): AcquireRequest => ({
  ...{ key: randomUUID(), holder: randomUUID(), leaseMs: 300_000, instance: 'spec' },
  ...more,
});

/** With which settings PostgreSQL ran the statement of each kind that wrote a row of the table: a trigger looks at them. */
export async function recordSettings(backend: LockBackend, { url, table }: Place) {
  await backend.check!(LIMIT_MS);
  const database = await new DataSource({ type: 'postgres', url }).initialize();
  await database.query(`CREATE TABLE recorded (id serial, key text, isolation text, durable text)`);
  await database.query(`CREATE FUNCTION record() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      INSERT INTO recorded (key, isolation, durable)
      VALUES (NEW.key, current_setting('transaction_isolation'), current_setting('synchronous_commit'));
      RETURN NULL;
    END $$`);
  await database.query(
    `CREATE TRIGGER record AFTER INSERT OR UPDATE ON ${table} FOR EACH ROW EXECUTE FUNCTION record()`,
  );
  /** Those of the last statement. */
  const settingsOf = async ({ key }: AcquireRequest, statement: Promise<unknown>) => {
    await statement;
    const rows = await database.query<Settings[]>(
      'SELECT isolation, durable FROM recorded WHERE key = $1 ORDER BY id DESC LIMIT 1',
      [key],
    );
    return rows[0];
  };
  const acquire = (...requests: AcquireRequest[]) => backend.execute({ acquire: requests }, LIMIT_MS);
  const release = (...requests: AcquireRequest[]) => backend.execute({ release: requests }, LIMIT_MS);
  try {
    const [one, two, three, run] = [request(), request(), request(), request({ tick })];
    const fresh = request();
    const end = { key: run.key, holder: run.holder, hasEnded: true } as const;
    return {
      grant: await settingsOf(one, acquire(one)),
      grants: await settingsOf(three, acquire(two, three)),
      renewal: await settingsOf(one, backend.execute({ renew: [one] }, LIMIT_MS)),
      registration: await settingsOf(fresh, backend.registerTicks(fresh.key, LIMIT_MS)),
      tick: await settingsOf(run, acquire(run)),
      end: await settingsOf(run, backend.execute({ release: [end] }, LIMIT_MS)),
      release: await settingsOf(one, release(one)),
      releases: await settingsOf(three, release(two, three)),
    };
  } finally {
    await database.destroy();
  }
}
