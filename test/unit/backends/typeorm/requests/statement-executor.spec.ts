import { describe, expect, it } from 'vitest';
import type { Statements } from '../../../../../lib/backends/typeorm/dialects/dialect.js';
import { postgres } from '../../../../../lib/backends/typeorm/dialects/postgres/postgres-dialect.js';
import { StatementExecutor } from '../../../../../lib/backends/typeorm/requests/statement-executor.js';
import { type Session, Timeout } from '../../../../../lib/backends/typeorm/connections/session.js';
import type { LockTable } from '../../../../../lib/backends/typeorm/table/lock-table.js';
import type { RequestBatch } from '../../../../../lib/core/backend.js';
import { Gate } from '../../../../support/gate.js';

const executorOf = (statements: object) =>
  new StatementExecutor({
    dialect: postgres,
    table: { ensureReady: async () => undefined, onStatementError: () => undefined } as unknown as LockTable,
    statements: statements as Statements,
  });

/** The results of the requests with these statements. The session ends when `hasEnded` says so. */
async function resultsOf(
  statements: { [Name in keyof Statements]?: (...parameters: Parameters<Statements[Name]>) => unknown },
  requests: RequestBatch,
  hasEnded = () => false,
) {
  const throwIfEnded = () => {
    if (hasEnded()) throw new Error('ended');
  };
  const session = { timeout: new Timeout(30_000), throwIfEnded } as Session;
  const results: Record<keyof RequestBatch, unknown[]> = { release: [], renew: [], acquire: [] };
  await executorOf(statements).execute(requests, (work) => work(session), {
    onResult: (kind, index, result) => (results[kind][index] = result),
  });
  return results;
}

const lock = { key: 'lock', holder: 'ours', leaseMs: 1_000, instance: 'spec' };
const neverSent = { kind: 'unknown', wasSent: false };

it('an acquisition whose session ended during the releases before it is reported as never sent, and is not sent', async () => {
  const sent: string[] = [];
  const { release, acquire } = await resultsOf(
    {
      async release() {
        sent.push('release');
        return [{ kind: 'released' }];
      },
      acquire: async () => sent.push('acquire'),
    },
    { release: [{ key: 'a', holder: 'ours' }], acquire: [lock] },
    () => sent.length > 0,
  );
  expect(release).toEqual([{ kind: 'released' }]);
  expect(acquire).toMatchObject([neverSent]);
  expect(sent).toEqual(['release']);
});

it('a request over a connection that has ended meanwhile is reported as never sent', async () => {
  const { renew } = await resultsOf({}, { renew: [lock] }, () => true);
  expect(renew).toMatchObject([{ ...neverSent, cause: { message: 'ended' } }]);
});

it('requests without a connection are all reported as never sent', async () => {
  const results: unknown[] = [];
  await executorOf({}).execute(
    { release: [lock], renew: [lock], acquire: [lock] },
    () => Promise.reject(new Error('refused')),
    { onResult: (_, __, result) => results.push(result) },
  );
  const refused = { ...neverSent, cause: { message: 'refused' } };
  expect(results).toMatchObject([refused, refused, refused]);
});

it('a result is reported before the statements after it have ended', async () => {
  const [order, released] = [[] as string[], new Gate()];
  const executed = executorOf({
    release: async () => [{ kind: 'released' }],
    async acquire() {
      await released.passed;
      return { nowUs: 1, results: [{ kind: 'granted', fencingToken: 1n }] };
    },
  }).execute(
    { release: [{ key: 'a', holder: 'ours' }], acquire: [lock] },
    (work) => work({ timeout: new Timeout(30_000), throwIfEnded: () => undefined } as unknown as Session),
    {
      onResult(kind) {
        order.push(kind);
        released.open();
      },
    },
  );
  await executed;
  expect(order).toEqual(['release', 'acquire']);
});

it('a locked row delays only its own request, whatever the kinds of the others', async () => {
  const order: string[] = [];
  const busy = Object.assign(new Error('lock timeout'), { code: '55P03' });
  const { release } = await resultsOf(
    {
      async release() {
        order.push('release');
        if (order.length === 1) throw busy;
        return [{ kind: 'released' }];
      },
      async acquire() {
        order.push('acquire');
        return { nowUs: 1, results: [{ kind: 'granted', fencingToken: 1n }] };
      },
    },
    { release: [{ key: 'locked', holder: 'ours' }], acquire: [lock] },
  );
  expect(order).toEqual(['release', 'acquire', 'release']);
  expect(release).toEqual([{ kind: 'released' }]);
});

describe('results stand even if the database', () => {
  const busy = Object.assign(new Error('lock timeout'), { code: '55P03' });
  const failing = () => Promise.reject(busy);

  it('is busy at the end of a run in the same batch as a release', async () => {
    const held = new Set(['lock', 'run']);
    const releaseOne = (key: string) => ({
      kind: held.delete(key) ? ('released' as const) : ('gone' as const),
    });
    let attempts = 0;
    const { release } = await resultsOf(
      {
        release: async (_, claims) => claims.map(({ key }) => releaseOne(key)),
        releaseEndedRun: async (_, { key }) => ((attempts += 1) < 2 ? failing() : releaseOne(key)),
      },
      {
        release: [
          { key: 'run', holder: 'ours', hasEnded: true },
          { key: 'lock', holder: 'ours' },
        ],
      },
    );
    expect(release).toEqual([{ kind: 'released' }, { kind: 'released' }]);
  });

  it('is busy at one end of a run, which is retried after all others', async () => {
    const executed: string[] = [];
    const { release } = await resultsOf(
      {
        releaseEndedRun: async (_, { key }) => {
          executed.push(key);
          return executed.length < 3 && key === 'locked' ? failing() : { kind: 'released' };
        },
      },
      { release: ['locked', 'free'].map((key) => ({ key, holder: 'ours', hasEnded: true })) },
    );
    expect(executed).toEqual(['locked', 'free', 'locked']);
    expect(release).toEqual([{ kind: 'released' }, { kind: 'released' }]);
  });

  it('fails at a tick in the same batch as a lock', async () => {
    const tick = { tickMs: 1, staleAfterMs: 1, attempts: 1 } as never;
    const { acquire } = await resultsOf(
      {
        acquire: async () => ({ nowUs: 1, results: [{ kind: 'granted', fencingToken: 1n }] }),
        readRow: () => Promise.reject(new Error('broken')),
      },
      { acquire: [{ ...lock, key: 'job', tick }, lock] },
    );
    expect(acquire).toMatchObject([{ kind: 'unknown' }, { kind: 'granted', fencingToken: 1n }]);
  });

  it('does not return its time after a grant', async () => {
    const { acquire } = await resultsOf(
      { acquire: async () => ({ results: [{ kind: 'granted', fencingToken: 1n }] }), readRow: failing },
      { acquire: [lock] },
    );
    expect(acquire).toEqual([{ kind: 'granted', fencingToken: 1n }]);
  });
});

it('the end of a run whose session ended during that of another is reported as never sent, and is not sent', async () => {
  const sent: string[] = [];
  const { release } = await resultsOf(
    {
      async releaseEndedRun(_: Session, { key }: { key: string }) {
        sent.push(key);
        return { kind: 'released' };
      },
    },
    { release: ['first', 'second'].map((key) => ({ key, holder: 'ours', hasEnded: true as const })) },
    () => sent.length > 0,
  );
  expect(release).toMatchObject([{ kind: 'released' }, neverSent]);
  expect(sent).toEqual(['first']);
});
