import { describe, expect, it } from '@jest/globals';
import type { Session, Statements } from '../../../../../lib/backends/typeorm/dialects/dialect.js';
import { postgres } from '../../../../../lib/backends/typeorm/dialects/postgres/postgres-dialect.js';
import { PendingBatch } from '../../../../../lib/backends/typeorm/requests/pending-batch.js';
import { StatementExecutor } from '../../../../../lib/backends/typeorm/requests/statement-executor.js';
import { Timeout } from '../../../../../lib/backends/typeorm/requests/timeout.js';
import type { LockTable } from '../../../../../lib/backends/typeorm/table/lock-table.js';
import { Gate } from '../../../../support/gate.js';

const executorOf = (statements: object) =>
  new StatementExecutor({
    dialect: postgres,
    table: { isReady: true, onStatementError: () => undefined } as unknown as LockTable,
    statements: statements as Statements,
  });

const sessionUntil = (timeout: Timeout, throwIfEnded = () => {}) => ({ timeout, throwIfEnded }) as Session;

it('an acquisition whose timeout ended during the releases before it is reported as never sent, and is not sent', async () => {
  using timeout = new Timeout(30_000);
  const [released, sent] = [new Gate(), [] as string[]];
  const statements = {
    async release() {
      await released.passed;
      return [{ kind: 'released' }];
    },
    async acquire() {
      sent.push('acquire');
      return { outcomes: [{ fencingToken: 1n }] };
    },
  };
  const release = new PendingBatch({ release: [{ key: 'a', holder: 'ours' }] }, 30_000);
  const acquire = new PendingBatch(
    { acquire: [{ key: 'b', holder: 'ours', leaseMs: 1_000, instance: 'spec' }] },
    20,
  );
  const executed = executorOf(statements).execute(
    [...release.pendingRequests, ...acquire.pendingRequests],
    sessionUntil(timeout),
  );
  expect((await acquire.result).acquire).toMatchObject([{ kind: 'unknown', wasSent: false }]);
  released.open();
  await executed;
  expect((await release.result).release).toEqual([{ kind: 'released' }]);
  expect(sent).toEqual([]);
});

it('a request over a connection that has ended meanwhile is reported as never sent', async () => {
  using timeout = new Timeout(30_000);
  const session = sessionUntil(timeout, () => {
    throw new Error('ended');
  });
  const batch = new PendingBatch({ renew: [{ key: 'a', holder: 'ours', leaseMs: 1_000 }] }, 30_000);
  await executorOf({}).execute(batch.pendingRequests, session);
  expect((await batch.result).renew).toMatchObject([
    { kind: 'unknown', wasSent: false, cause: { message: 'ended' } },
  ]);
});

describe('results stand even if the database', () => {
  const busy = Object.assign(new Error('lock timeout'), { code: '55P03' });
  const failing = () => Promise.reject(busy);

  /** The results of the requests with these statements. */
  async function resultsOf(
    statements: Partial<Statements>,
    requests: ConstructorParameters<typeof PendingBatch>[0],
  ) {
    using timeout = new Timeout(30_000);
    const batch = new PendingBatch(requests, 30_000);
    await executorOf(statements).execute(batch.pendingRequests, sessionUntil(timeout));
    return await batch.result;
  }

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

  const lock = { key: 'lock', holder: 'ours', leaseMs: 1_000, instance: 'spec' };

  it('fails at a tick in the same batch as a lock', async () => {
    const tick = { tickMs: 1, staleAfterMs: 1, attempts: 1 } as never;
    const { acquire } = await resultsOf(
      {
        acquire: async () => ({ nowUs: 1, outcomes: [{ fencingToken: 1n }] }),
        readRow: () => Promise.reject(new Error('broken')),
      },
      { acquire: [{ ...lock, key: 'job', tick }, lock] },
    );
    expect(acquire).toMatchObject([{ kind: 'unknown' }, { kind: 'granted', fencingToken: 1n }]);
  });

  it('does not return its time after a grant', async () => {
    const { acquire } = await resultsOf(
      { acquire: async () => ({ outcomes: [{ fencingToken: 1n }] }), readRow: failing },
      { acquire: [lock] },
    );
    expect(acquire).toEqual([{ kind: 'granted', fencingToken: 1n }]);
  });
});

it('the end of a run whose timeout ended during that of another is reported as never sent, and is not sent', async () => {
  using timeout = new Timeout(30_000);
  const [ended, sent] = [new Gate(), [] as string[]];
  const statements = {
    async releaseEndedRun(_: Session, { key }: { key: string }) {
      sent.push(key);
      await ended.passed;
      return { kind: 'released' };
    },
  };
  const end = (key: string, timeoutMs: number) =>
    new PendingBatch({ release: [{ key, holder: 'ours', hasEnded: true }] }, timeoutMs);
  const [first, second] = [end('first', 30_000), end('second', 20)];
  const executed = executorOf(statements).execute(
    [...first.pendingRequests, ...second.pendingRequests],
    sessionUntil(timeout),
  );
  expect((await second.result).release).toMatchObject([{ kind: 'unknown', wasSent: false }]);
  ended.open();
  await executed;
  expect(sent).toEqual(['first']);
});
