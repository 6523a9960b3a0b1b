import { describe, expect, it } from '@jest/globals';
import { Call } from '../../../../lib/backends/typeorm/call.js';
import { Carrier } from '../../../../lib/backends/typeorm/carrier.js';
import { Deadline } from '../../../../lib/backends/typeorm/deadline.js';
import type { Statements, Visit } from '../../../../lib/backends/typeorm/dialect.js';
import type { LockTable } from '../../../../lib/backends/typeorm/lock-table.js';
import { postgres } from '../../../../lib/backends/typeorm/postgres.js';
import { Gate } from '../../../gate.js';

const carrierOf = (statements: object) =>
  new Carrier({
    dialect: postgres,
    table: { isThere: true, doubt: () => undefined } as unknown as LockTable,
    statements: statements as Statements,
  });

const visitUntil = (deadline: Deadline, throwIfEnded = () => {}) => ({ deadline, throwIfEnded }) as Visit;

it('an acquisition whose time ran out during the releases before it is never sent, as its asker was told', async () => {
  using deadline = new Deadline(30_000);
  const [released, sent] = [new Gate(), [] as string[]];
  const statements = {
    async release() {
      await released.passed;
      return [{ kind: 'released' }];
    },
    async acquire() {
      sent.push('acquire');
      return { each: [{ fencingToken: 1n }] };
    },
  };
  const release = new Call({ release: [{ key: 'a', holder: 'ours' }] }, 30_000);
  const acquire = new Call({ acquire: [{ key: 'b', holder: 'ours', leaseMs: 1_000, instance: 'spec' }] }, 20);
  const carried = carrierOf(statements).carry([...release.errands, ...acquire.errands], visitUntil(deadline));
  expect((await acquire.answered).acquire).toMatchObject([{ kind: 'unknown', wasSent: false }]);
  released.open();
  await carried;
  expect((await release.answered).release).toEqual([{ kind: 'released' }]);
  expect(sent).toEqual([]);
});

it('nothing was sent over a connection that has ended meanwhile, and the asker hears so', async () => {
  using deadline = new Deadline(30_000);
  const visit = visitUntil(deadline, () => {
    throw new Error('ended');
  });
  const call = new Call({ renew: [{ key: 'a', holder: 'ours', leaseMs: 1_000 }] }, 30_000);
  await carrierOf({}).carry(call.errands, visit);
  expect((await call.answered).renew).toMatchObject([
    { kind: 'unknown', wasSent: false, cause: { message: 'ended' } },
  ]);
});

describe('what has landed stands, though the database', () => {
  const busy = Object.assign(new Error('lock timeout'), { code: '55P03' });
  const failing = () => Promise.reject(busy);

  /** What each of the requests is answered by these statements. */
  async function answersOf(statements: Partial<Statements>, requests: ConstructorParameters<typeof Call>[0]) {
    using deadline = new Deadline(30_000);
    const call = new Call(requests, 30_000);
    await carrierOf(statements).carry(call.errands, visitUntil(deadline));
    return await call.answered;
  }

  it('is too busy for the end of a run that is told with a release', async () => {
    const held = new Set(['lock', 'run']);
    const free = (key: string) => ({ kind: held.delete(key) ? ('released' as const) : ('gone' as const) });
    let tries = 0;
    const { release } = await answersOf(
      {
        release: async (_, claims) => claims.map(({ key }) => free(key)),
        finish: async (_, { key }) => ((tries += 1) < 2 ? failing() : free(key)),
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
        finish: async (_, { key }) => {
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
        acquire: async () => ({ nowUs: 1, each: [{ fencingToken: 1n }] }),
        look: () => Promise.reject(new Error('broken')),
      },
      { acquire: [{ ...lock, key: 'job', tick }, lock] },
    );
    expect(acquire).toMatchObject([{ kind: 'unknown' }, { kind: 'granted', fencingToken: 1n }]);
  });

  it('does not tell its time after a grant', async () => {
    const { acquire } = await answersOf(
      { acquire: async () => ({ each: [{ fencingToken: 1n }] }), look: failing },
      { acquire: [lock] },
    );
    expect(acquire).toEqual([{ kind: 'granted', fencingToken: 1n }]);
  });
});

it('the end of a run whose time ran out during that of another is never sent, as its asker was told', async () => {
  using deadline = new Deadline(30_000);
  const [ended, sent] = [new Gate(), [] as string[]];
  const statements = {
    async finish(_: Visit, { key }: { key: string }) {
      sent.push(key);
      await ended.passed;
      return { kind: 'released' };
    },
  };
  const end = (key: string, limitMs: number) =>
    new Call({ release: [{ key, holder: 'ours', hasEnded: true }] }, limitMs);
  const [first, second] = [end('first', 30_000), end('second', 20)];
  const carried = carrierOf(statements).carry([...first.errands, ...second.errands], visitUntil(deadline));
  expect((await second.answered).release).toMatchObject([{ kind: 'unknown', wasSent: false }]);
  ended.open();
  await carried;
  expect(sent).toEqual(['first']);
});
