import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DataSource } from 'typeorm';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import type { AcquireRequest, LockBackend, ReleaseRequest } from '../../lib/core/backend.js';
import type { ReleaseNotice } from '../../lib/core/store-notices.js';
import { backendOn, dataSourceOptions, postgresStore } from '../support/stores.js';
import { until } from '../support/until.js';

const LIMIT_MS = 30_000;

let [ours, theirs]: LockBackend[] = [];
let database: DataSource;
let calls: ReleaseNotice[];

beforeEach(async () => {
  [ours, theirs] = [backendOn(postgresStore()), backendOn(postgresStore())];
  database = await new DataSource(dataSourceOptions(postgresStore())).initialize();
  calls = [];
  theirs.onReleased!((freed) => calls.push(freed));
});

afterEach(async () => {
  await Promise.all([ours!.close(), theirs!.close(), database.destroy()]);
});

const acquisition = (wish: Partial<AcquireRequest> = {}): AcquireRequest => ({
  ...{ key: randomUUID(), holder: randomUUID(), leaseMs: 30_000, instance: 'spec' },
  ...wish,
});

const ask = async (backend: LockBackend, request: AcquireRequest) =>
  (await backend.execute({ acquire: [request] }, LIMIT_MS)).acquire[0]!;

/** Holds a key that somebody else waits for, who is called. */
async function holdInDemand(): Promise<AcquireRequest> {
  const held = acquisition();
  await ask(ours!, held);
  await until(async () => {
    const answer = await ask(theirs!, acquisition({ key: held.key, retryWithinMs: 60_000 }));
    return answer.kind === 'taken' && answer.willBeNotified === true;
  });
  return held;
}

it('a waiter is notified when the key is released', async () => {
  const held = await holdInDemand();
  expect(await ours!.execute({ release: [held] }, LIMIT_MS)).toMatchObject({
    release: [{ kind: 'released', hasWaiters: true }],
  });
  await until(() => calls.some(({ key }) => key === held.key));
});

it('a waiter is notified when the key is released by force', async () => {
  const held = await holdInDemand();
  const { fencingToken } = (await ours!.inspect(held.key, LIMIT_MS))!;
  await ours!.forceRelease(held.key, fencingToken, LIMIT_MS);
  await until(() => calls.some(({ key }) => key === held.key));
});

it('a waiter is notified when the key is released together with others', async () => {
  const [held, other] = [await holdInDemand(), acquisition()];
  await ask(ours!, other);
  await ours!.execute({ release: [held, other] }, LIMIT_MS);
  await until(() => calls.some(({ key }) => key === held.key));
});

it('no notification is sent for a key without waiters', async () => {
  const [quiet, held] = [acquisition(), await holdInDemand()];
  await ask(ours!, quiet);
  await ask(theirs!, acquisition({ key: quiet.key }));
  await ours!.execute({ release: [quiet] }, LIMIT_MS);
  await ours!.execute({ release: [held] }, LIMIT_MS);
  // Calls come in the order of the releases.
  await until(() => calls.some(({ key }) => key === held.key));
  expect(calls.filter(({ key }) => key === quiet.key)).toEqual([]);
});

it('a cut notification connection is opened again, and reports that notifications may have been missed', async () => {
  const held = await holdInDemand();
  const listeners = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN %'`;
  calls = [];
  await database.query(listeners);
  await until(() => calls.some(({ key }) => key === undefined));
  const waiter = acquisition({ key: held.key, retryWithinMs: 60_000 });
  expect(await ask(theirs!, waiter)).toMatchObject({ kind: 'taken', willBeNotified: true });
  await ours!.execute({ release: [held] }, LIMIT_MS);
  await until(() => calls.some(({ key }) => key === held.key));
});

it('a refused acquisition that is repeated soon writes nothing', async () => {
  const held = await holdInDemand();
  const writes = async () =>
    (
      await database.query<{ waiting_until: string; xmin: string }[]>(
        'SELECT xmin, waiting_until FROM distributed_lock WHERE key = $1',
        [held.key],
      )
    )[0];
  const before = await writes();
  for (let turn = 0; turn < 5; turn += 1) {
    await ask(theirs!, acquisition({ key: held.key, retryWithinMs: 60_000 }));
    await ask(theirs!, acquisition({ key: held.key }));
  }
  expect(await writes()).toEqual(before);
});

it('the end of a subscription leaves no connection open', async () => {
  await holdInDemand();
  await theirs!.close();
  await ours!.close();
  const count = async () =>
    (
      await database.query<{ open: number }[]>(
        `SELECT count(*)::int AS open FROM pg_stat_activity WHERE query LIKE 'LISTEN %'`,
      )
    )[0]!.open;
  await until(async () => (await count()) === 0);
});

describe('a full queue of NOTIFY', () => {
  const schema = `full_${randomUUID().replaceAll('-', '')}`;
  const table = `${schema}.locks`;
  const backend = () =>
    typeormBackend({
      dataSource: {
        ...dataSourceOptions(postgresStore()),
        extra: { options: `-c search_path=${schema},pg_catalog` },
      },
      table,
    });

  /** The server says so when the transaction commits. Here each one that calls out finds the queue full. */
  const FULL = [
    `CREATE FUNCTION ${schema}.pg_notify(text, text) RETURNS void LANGUAGE sql
      AS $$ SELECT set_config('spec.called', 'yes', true) $$`,
    `CREATE FUNCTION ${schema}.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF current_setting('spec.called', true) = 'yes' THEN
        RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000';
      END IF;
      RETURN NULL;
    END $$`,
    `CREATE CONSTRAINT TRIGGER full_queue AFTER UPDATE ON ${table} DEFERRABLE INITIALLY DEFERRED
      FOR EACH ROW EXECUTE FUNCTION ${schema}.fail()`,
  ];

  it('undoes no release, by force or not, of one key or of several, and no end of a run', async () => {
    await database.query(`CREATE SCHEMA ${schema}`);
    const full = backend();
    try {
      await full.check(LIMIT_MS);
      for (const statement of FULL) await database.query(statement);
      const [one, two, three, forced, run] = Array.from({ length: 5 }, () => acquisition());
      const held = [one!, two!, three!, forced!, run!];
      for (const { key, ...rest } of held) await ask(full, { key, ...rest });
      for (const { key } of held) await ask(full, acquisition({ key, retryWithinMs: 60_000 }));
      const released = { kind: 'released', hasWaiters: true };
      const release = async (...claims: ReleaseRequest[]) =>
        (await full.execute({ release: claims }, LIMIT_MS)).release;
      expect(await release(one!)).toEqual([released]);
      expect(await release(two!, three!)).toEqual([released, released]);
      expect(await release({ ...run!, hasEnded: true })).toEqual([released]);
      const { fencingToken } = (await full.inspect(forced!.key, LIMIT_MS))!;
      expect(await full.forceRelease(forced!.key, fencingToken, LIMIT_MS)).toBe(true);
    } finally {
      await full.close();
      await database.query(`DROP SCHEMA ${schema} CASCADE`);
    }
  });
});
