import { randomUUID } from 'node:crypto';
import { Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { DataSource } from 'typeorm';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import type { AcquireRequest, LockBackend } from '../../lib/core/backend.js';
import { bareLocks } from '../support/bare-locks.js';
import { serviceUrl } from '../support/environment.js';
import { type PostgresDatabase, createPostgresDatabase, urlOf } from '../support/postgres-database.js';
import { startPgbouncer } from '../services/pgbouncer.js';
import type { Service } from '../services/service.js';
import { until } from '../support/until.js';

const LIMIT_MS = 20_000;
/** Shorter than a statement waits for a row. */
const SHORT_MS = 300;

let pooler: Service;
let database: PostgresDatabase;
beforeAll(async () => {
  const [file, server] = [serviceUrl('TEST_PGBOUNCER'), serviceUrl('TEST_POSTGRES_URL')];
  [pooler, database] = await Promise.all([startPgbouncer({ file, server }), createPostgresDatabase()]);
});
afterAll(async () => {
  await pooler.stop();
  await database.drop();
});

/** Whether `ours` can open a connection. */
let mayConnect: boolean;
let ours: LockBackend;
let theirs: LockBackend;
beforeEach(() => {
  const dataSource = { type: 'postgres', url: urlOf(pooler.url, database.name) } as const;
  mayConnect = true;
  const stream = () => {
    if (mayConnect) return new Socket();
    throw new Error('no connection');
  };
  ours = typeormBackend({ dataSource: { ...dataSource, extra: { stream } } });
  theirs = typeormBackend({ dataSource });
});
afterEach(() => Promise.all([ours.close(), theirs.close()]));

/** How many connections of the server to this database had such a statement last. */
const connectionsWith = async (pattern: string) => {
  const rows = await database.query<{ count: number }>(
    'SELECT count(*)::int AS count FROM pg_stat_activity WHERE datname = $1 AND query LIKE $2',
    [database.name, pattern],
  );
  return rows[0]!.count;
};

const serverTimeMs = async () => {
  const [row] = await database.query<{ ms: number }>(
    'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float AS ms',
  );
  return row!.ms;
};

const request = (more: Partial<AcquireRequest> = {}): AcquireRequest => ({
  ...{ key: randomUUID(), holder: randomUUID(), leaseMs: 30_000, instance: 'spec' },
  ...more,
});

const claimTick = async (backend: LockBackend, key: string, timeoutMs: number) => {
  const tick = { tickMs: Date.now() + 1_000, maxEarlyMs: 60_000, staleAfterMs: 60_000 };
  return (await backend.execute({ acquire: [request({ key, tick })] }, timeoutMs)).acquire[0];
};

it('a lock is acquired, renewed and released when each statement reaches another server connection', async () => {
  let rounds = 0;
  await until(async () => {
    const claim = request();
    const { acquire } = await ours.execute({ acquire: [claim] }, LIMIT_MS);
    const { renew } = await ours.execute({ renew: [claim] }, LIMIT_MS);
    const { release } = await ours.execute({ release: [claim] }, LIMIT_MS);
    const kinds = [acquire, renew, release].map(([answer]) => answer?.kind);
    expect(kinds).toEqual(['granted', 'renewed', 'released']);
    rounds += 1;
    return rounds > 10 && (await connectionsWith('%distributed_lock%')) === 3;
  });
});

describe.each([
  ['is cancelled', false],
  ['cannot be cancelled', true],
])('a statement that waits for a row and %s takes no effect after it has failed:', (_, isCut) => {
  it.each([
    ['a claim', (key: string) => claimTick(ours, key, SHORT_MS)],
    [
      'a pause',
      (key: string) => ours.setPaused(key, true, SHORT_MS).catch(() => ({ kind: 'unknown' as const })),
    ],
  ])('%s', async (_, change) => {
    const key = randomUUID();
    await theirs.registerTicks(key, LIMIT_MS);
    // Opens a connection. Cancelling needs another one.
    await ours.readTicks(key, LIMIT_MS);
    mayConnect = !isCut;
    const application = await new DataSource({ type: 'postgres', url: database.url }).initialize();
    try {
      const runner = application.createQueryRunner();
      await runner.startTransaction();
      await runner.query('SELECT 1 FROM distributed_lock WHERE key = $1 FOR UPDATE', [key]);
      expect(await change(key)).toMatchObject({ kind: 'unknown' });
      // The latest time is estimated too late rather than too early: by as much as its reading took, which was in time.
      const latestMs = (await serverTimeMs()) + SHORT_MS;
      await until(async () => (await serverTimeMs()) > latestMs);
      await runner.rollbackTransaction();
      await ours.close();
    } finally {
      await application.destroy();
    }
    // Behind the row lock of the statement that had waited, if it is still there.
    expect(await claimTick(theirs, key, LIMIT_MS)).toMatchObject({ kind: 'granted' });
  });
});

it('a locked row delays only its own key, not the others of its batch', async () => {
  const [locked, ...others] = Array.from({ length: 4 }, () => request());
  await theirs.registerTicks(locked!.key, LIMIT_MS);
  const application = await new DataSource({ type: 'postgres', url: database.url }).initialize();
  try {
    const runner = application.createQueryRunner();
    await runner.startTransaction();
    await runner.query('SELECT 1 FROM distributed_lock WHERE key = $1 FOR UPDATE', [locked!.key]);
    const { acquire } = await ours.execute({ acquire: [locked!, ...others] }, 10_000);
    expect(acquire.map(({ kind }) => kind)).toEqual(['unknown', 'granted', 'granted', 'granted']);
    await runner.rollbackTransaction();
  } finally {
    await application.destroy();
  }
});

it('a waiter is not promised a notification, and nothing listens on the server', async () => {
  const held = request();
  await ours.execute({ acquire: [held] }, LIMIT_MS);
  const ask = async () => {
    const waiter = request({ key: held.key, retryWithinMs: 60_000 });
    return (await theirs.execute({ acquire: [waiter] }, LIMIT_MS)).acquire[0];
  };
  // The first one that has to wait opens a connection to listen on, which finds out that a pooler is there.
  await ask();
  await until(async () => (await connectionsWith('%pg_backend_pid()%')) > 0);
  for (let turn = 0; turn < 10; turn += 1) {
    const answer = await ask();
    expect(answer).toMatchObject({ kind: 'taken' });
    expect(answer).not.toHaveProperty('willBeNotified');
  }
  expect(await connectionsWith('LISTEN %')).toBe(0);
});

it('waiters of several processes all get the lock in turn', async () => {
  const namespace = randomUUID();
  const processes = [ours, theirs].map((backend) => bareLocks({ backend, namespace }));
  let [inside, most, done] = [0, 0, 0];
  const work = async () => {
    inside += 1;
    most = Math.max(most, inside);
    await new Promise((resolve) => setImmediate(resolve));
    inside -= 1;
    done += 1;
  };
  const each = processes.flatMap((locks) =>
    Array.from({ length: 10 }, () => locks.withLock('key', { waitMs: 25_000 }, work)),
  );
  await Promise.all(each);
  expect({ most, done }).toEqual({ most: 1, done: 20 });
});

it('a table without a schema is reported at boot, because another client may have changed the search_path', async () => {
  expect(await ours.advice!(LIMIT_MS)).toContain("table: 'public.distributed_lock'");
  const url = urlOf(pooler.url, database.name);
  const others = [
    typeormBackend({ dataSource: { type: 'postgres', url }, table: 'public.distributed_lock' }),
    typeormBackend({ dataSource: { type: 'postgres', url, schema: 'public' } }),
    typeormBackend({ dataSource: { type: 'postgres', url: database.url } }),
  ];
  for (const backend of others) {
    expect(await backend.advice(LIMIT_MS)).toBeUndefined();
    await backend.close();
  }
});

it('a table that has vanished is not created again, so that a lock cannot have two holders', async () => {
  const table = `t_${randomUUID().replaceAll('-', '')}`;
  const dataSource = { type: 'postgres', url: urlOf(pooler.url, database.name) } as const;
  const owner = await new DataSource({ type: 'postgres', url: database.url }).initialize();
  const backend = typeormBackend({ dataSource, table });
  try {
    const held = request();
    const ask = async () =>
      (await backend.execute({ acquire: [request({ key: held.key })] }, LIMIT_MS)).acquire[0];
    expect((await backend.execute({ acquire: [held] }, LIMIT_MS)).acquire[0]!.kind).toBe('granted');
    // As a search_path of another client of the pooler hides the table.
    await owner.query(`CREATE SCHEMA hidden; ALTER TABLE ${table} SET SCHEMA hidden`);
    for (let turn = 0; turn < 5; turn += 1) expect((await ask())!.kind).toBe('unknown');
    expect(await ask()).toMatchObject({ cause: { message: expect.stringContaining('has vanished') } });
    await owner.query(`ALTER TABLE hidden.${table} SET SCHEMA public`);
    await until(async () => (await ask())!.kind === 'taken');
  } finally {
    await backend.close();
    await owner.destroy();
  }
});
