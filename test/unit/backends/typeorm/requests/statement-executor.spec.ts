import { describe, expect, it } from '@jest/globals';
import type { Session, Statements } from '../../../../../lib/backends/typeorm/dialects/dialect.js';
import { postgres } from '../../../../../lib/backends/typeorm/dialects/postgres/postgres-dialect.js';
import { PendingBatch } from '../../../../../lib/backends/typeorm/requests/pending-batch.js';
import { StatementExecutor } from '../../../../../lib/backends/typeorm/requests/statement-executor.js';
import { Timeout } from '../../../../../lib/backends/typeorm/requests/timeout.js';
import type { LockTable } from '../../../../../lib/backends/typeorm/table/lock-table.js';
import { Gate } from '../../../../support/gate.js';

const carrierOf = (statements: object) =>
  new StatementExecutor({
    dialect: postgres,
    table: { isReady: true, onStatementError: () => undefined } as unknown as LockTable,
    statements: statements as Statements,
  });

const visitUntil = (deadline: Timeout, throwIfEnded = () => {}) =>
  ({ timeout: deadline, throwIfEnded }) as Session;

it('an acquisition whose time ran out during the releases before it is never sent, as its asker was told', async () => {
  using deadline = new Timeout(30_000);
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
  const carried = carrierOf(statements).execute(
    [...release.pendingRequests, ...acquire.pendingRequests],
    visitUntil(deadline),
  );
  expect((await acquire.result).acquire).toMatchObject([{ kind: 'unknown', wasSent: false }]);
  released.open();
  await carried;
  expect((await release.result).release).toEqual([{ kind: 'released' }]);
  expect(sent).toEqual([]);
});

it('nothing was sent over a connection that has ended meanwhile, and the asker hears so', async () => {
  using deadline = new Timeout(30_000);
  const visit = visitUntil(deadline, () => {
    throw new Error('ended');
  });
  const call = new PendingBatch({ renew: [{ key: 'a', holder: 'ours', leaseMs: 1_000 }] }, 30_000);
  await carrierOf({}).execute(call.pendingRequests, visit);
  expect((await call.result).renew).toMatchObject([
    { kind: 'unknown', wasSent: false, cause: { message: 'ended' } },
  ]);
});

describe('what has landed stands, though the database', () => {
  const busy = Object.assign(new Error('lock timeout'), { code: '55P03' });
  const failing = () => Promise.reject(busy);

  /** What each of the requests is answered by these statements. */
  async function answersOf(
    statements: Partial<Statements>,
    requests: ConstructorParameters<typeof PendingBatch>[0],
  ) {
    using deadline = new Timeout(30_000);
    const call = new PendingBatch(requests, 30_000);
    await carrierOf(statements).execute(call.pendingRequests, visitUntil(deadline));
    return await call.result;
  }

  it('is too busy for the end of a run that is told with a release', async () => {
    const held = new Set(['lock', 'run']);
    const free = (key: string) => ({ kind: held.delete(key) ? ('released' as const) : ('gone' as const) });
    let tries = 0;
    const { release } = await answersOf(
      {
        release: async (_, claims) => claims.map(({ key }) => free(key)),
        releaseEndedRun: async (_, { key }) => ((tries += 1) < 2 ? failing() : free(key)),
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

  it('is too busy for one end of a run, which is tried again after all others', async () => {
    const asked: string[] = [];
    const { release } = await answersOf(
      {
        releaseEndedRun: async (_, { key }) => {
          asked.push(key);
          return asked.length < 3 && key === 'locked' ? failing() : { kind: 'released' };
        },
      },
      { release: ['locked', 'free'].map((key) => ({ key, holder: 'ours', hasEnded: true })) },
    );
    expect(asked).toEqual(['locked', 'free', 'locked']);
    expect(release).toEqual([{ kind: 'released' }, { kind: 'released' }]);
  });

  const lock = { key: 'lock', holder: 'ours', leaseMs: 1_000, instance: 'spec' };

  it('fails at the tick that is claimed with a lock', async () => {
    const tick = { tickMs: 1, staleAfterMs: 1, attempts: 1 } as never;
    const { acquire } = await answersOf(
      {
        acquire: async () => ({ nowUs: 1, outcomes: [{ fencingToken: 1n }] }),
        readRow: () => Promise.reject(new Error('broken')),
      },
      { acquire: [{ ...lock, key: 'job', tick }, lock] },
    );
    expect(acquire).toMatchObject([{ kind: 'unknown' }, { kind: 'granted', fencingToken: 1n }]);
  });

  it('does not tell its time after a grant', async () => {
    const { acquire } = await answersOf(
      { acquire: async () => ({ outcomes: [{ fencingToken: 1n }] }), readRow: failing },
      { acquire: [lock] },
    );
    expect(acquire).toEqual([{ kind: 'granted', fencingToken: 1n }]);
  });
});

it('the end of a run whose time ran out during that of another is never sent, as its asker was told', async () => {
  using deadline = new Timeout(30_000);
  const [ended, sent] = [new Gate(), [] as string[]];
  const statements = {
    async releaseEndedRun(_: Session, { key }: { key: string }) {
      sent.push(key);
      await ended.passed;
      return { kind: 'released' };
    },
  };
  const end = (key: string, limitMs: number) =>
    new PendingBatch({ release: [{ key, holder: 'ours', hasEnded: true }] }, limitMs);
  const [first, second] = [end('first', 30_000), end('second', 20)];
  const carried = carrierOf(statements).execute(
    [...first.pendingRequests, ...second.pendingRequests],
    visitUntil(deadline),
  );
  expect((await second.result).release).toMatchObject([{ kind: 'unknown', wasSent: false }]);
  ended.open();
  await carried;
  expect(sent).toEqual(['first']);
});
