import { expect, it } from 'vitest';
import { DataSource, type QueryRunner } from 'typeorm';
import { createPostgresStatements } from '../../lib/backends/typeorm/dialects/postgres/postgres-statements.js';
import type { Statements } from '../../lib/backends/typeorm/dialects/dialect.js';
import type { LockRow } from '../../lib/backends/typeorm/table/lock-row.js';
import type { Session } from '../../lib/backends/typeorm/connections/session.js';
import { typeormBackend } from '../../lib/backends/typeorm/index.js';
import { createPostgresDatabase } from '../support/postgres-database.js';

const FAR_US = 9e15;
const free: LockRow = {
  ...{
    holder: '',
    instance: '',
    fencingToken: 0n,
    expiresAtUs: 0,
    acquiredAtUs: 0,
    tickMs: null,
    attempt: 0,
  },
};
const held = { key: 'held', holder: 'h' };
const other = { key: 'held-2', holder: 'h' };
const request = (key: string) => ({ key, holder: 'new', leaseMs: 1_000, instance: 'spec' });
const tick = { tickMs: 1, maxEarlyMs: 1, staleAfterMs: 1 };

type Statement = (statements: Statements, session: Session) => Promise<unknown>;
const statementsOnLockedRows: Record<string, Statement> = {
  'the acquisition of a free key': (on, session) => on.acquire(session, [request('free')], FAR_US),
  'the acquisition of several keys': (on, session) =>
    on.acquire(session, [request('free'), request('free-2')], FAR_US),
  'a renewal': (on, session) => on.renew(session, [{ ...held, leaseMs: 1_000_000 }]),
  'a release': (on, session) => on.release(session, [held]),
  'the release of several keys': (on, session) => on.release(session, [held, other]),
  'a forced release': (on, session) => on.forceRelease(session, 'held', 1n),
  'the end of a run': (on, session) => on.releaseEndedRun(session, held),
  'a claim': (on, session) =>
    on.claim(session, { ...request('free'), tick }, { row: free, attempt: 1, notAfterUs: FAR_US }),
  'the change of a tick': (on, session) =>
    on.setTick(session, { key: 'free', latestUs: FAR_US, tickMs: 1, attempt: 0 }, free),
  'the insertion of a row': (on, session) => on.insertMissing(session, 'inserted'),
  'an entry of the history': (on, session) => on.appendHistory(session, 'free', 'entry'),
  'the clean-up of ticks': (on, session) =>
    on.cleanUp(session, { fromKey: 'free', beforeKey: 'free-3', afterMs: 0 }),
};

/** A session without any setting of ours, as behind a pooler. */
const sessionOf = (runner: QueryRunner) =>
  ({
    query: async (sql: string, parameters: unknown[]) =>
      ((await runner.query(sql, parameters, true)) as { records: unknown }).records,
  }) as unknown as Session;

it.concurrent.each(Object.entries(statementsOnLockedRows))(
  '%s waits at most a second for a locked row, and the setting ends with the statement',
  async (_, run) => {
    const database = await createPostgresDatabase();
    const dataSource = { type: 'postgres', url: database.url } as const;
    const backend = typeormBackend({ dataSource });
    await backend.check(20_000);
    await backend.close();
    const source = await new DataSource(dataSource).initialize();
    const [application, runner] = [source.createQueryRunner(), source.createQueryRunner()];
    try {
      await source.query(
        `INSERT INTO distributed_lock (key, holder, instance, version, token_count, expires_at, acquired_at)
         VALUES ('held', 'h', '', 1, 1, ${FAR_US}, 0), ('held-2', 'h', '', 1, 1, ${FAR_US}, 0),
         ('free', NULL, '', 0, 0, 0, 0), ('free-2', NULL, '', 0, 0, 0, 0)`,
      );
      await application.startTransaction();
      await application.query('SELECT 1 FROM distributed_lock FOR UPDATE');
      await application.query(
        `INSERT INTO distributed_lock (key, instance, version, token_count, expires_at, acquired_at)
         VALUES ('inserted', '', 0, 0, 0, 0)`,
      );
      await runner.query(`SET statement_timeout = '10s'`);
      const statements = createPostgresStatements({ name: 'distributed_lock', inSql: '"distributed_lock"' });
      await expect(run(statements, sessionOf(runner))).rejects.toMatchObject({ code: '55P03' });
      expect(await runner.query('SHOW lock_timeout')).toEqual([{ lock_timeout: '0' }]);
      // Each statement does its work once the row is free, without a trace of the setting.
      await application.rollbackTransaction();
      await run(statements, sessionOf(runner));
      expect(await runner.query('SHOW lock_timeout')).toEqual([{ lock_timeout: '0' }]);
    } finally {
      if (application.isTransactionActive) await application.rollbackTransaction();
      await Promise.all([application.release(), runner.release()]);
      await source.destroy();
      await database.drop();
    }
  },
  60_000,
);
