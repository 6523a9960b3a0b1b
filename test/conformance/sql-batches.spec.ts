import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { DataSource } from 'typeorm';
import type { AcquireRequest, LockBackend } from '../../lib/core/backend.js';
import { systemClock } from '../../lib/core/clock.js';
import { BackendUse } from '../../lib/core/backend-use.js';
import { Batcher } from '../../lib/core/requests/batcher.js';
import { PendingRequest } from '../../lib/core/requests/pending-request.js';
import { TimerWheel } from '../../lib/core/timer-wheel.js';
import {
  type Store,
  backendOn,
  dataSourceOptions,
  databasesIn,
  mariadbStore,
  postgresStore,
} from '../support/stores.js';
import { tempFolder } from '../support/temp-folder.js';
import { until } from '../support/until.js';

const LIMIT_MS = 30_000;
const stores = databasesIn(tempFolder());

const acquisition = (key: string, wish: Partial<AcquireRequest> = {}): AcquireRequest => ({
  ...{ key, holder: randomUUID(), leaseMs: 30_000, instance: 'spec' },
  ...wish,
});

const keysOf = (count: number) => {
  const prefix = randomUUID();
  return Array.from({ length: count }, (_, index) => `${prefix}:${index}`);
};

async function open(store: Store, work: (ours: LockBackend, theirs: LockBackend) => Promise<void>) {
  const [ours, theirs] = [backendOn(store), backendOn(store)];
  try {
    await work(ours, theirs);
  } finally {
    await Promise.all([ours.close(), theirs.close()]);
  }
}

class AwaitedRequest extends PendingRequest<'acquire' | 'release'> {
  constructor(
    kind: 'acquire' | 'release',
    request: AcquireRequest,
    readonly resolve: (result: { kind: string }) => void,
  ) {
    super(kind, request, LIMIT_MS);
  }

  protected onResult(result: { kind: string }): void {
    this.resolve(result);
  }
}

describe.each(stores)('many requests on %s', (_, storeOf) => {
  it('get a result each', () =>
    open(storeOf(), async (ours, theirs) => {
      const keys = keysOf(1_000);
      const isTheirs = (index: number) => index % 7 === 0;
      const taken = keys.filter((_, index) => isTheirs(index)).map((key) => acquisition(key));
      await theirs.execute({ acquire: taken }, LIMIT_MS);
      const asked = keys.map((key) => acquisition(key));
      const { acquire } = await ours.execute({ acquire: asked }, LIMIT_MS);
      const granted = keys.map((_, index) => (isTheirs(index) ? 'taken' : 'granted'));
      expect(acquire.map(({ kind }) => kind)).toEqual(granted);
      const renew = asked.map(({ key, holder }) => ({ key, holder, leaseMs: 60_000 }));
      const all = await ours.execute({ renew, release: asked.slice(0, 10) }, LIMIT_MS);
      expect(all.release.map(({ kind }) => kind)).toEqual(
        keys.slice(0, 10).map((_, index) => (isTheirs(index) ? 'gone' : 'released')),
      );
      expect(all.renew.map(({ kind }) => kind)).toEqual(
        keys.map((_, index) => (isTheirs(index) || index < 10 ? 'lost' : 'renewed')),
      );
    }));

  it('do not block the same ones in another order', () =>
    open(storeOf(), async (ours, theirs) => {
      const keys = keysOf(100);
      const turns = async (backend: LockBackend, inOrder: readonly string[]) => {
        for (let turn = 0; turn < 10; turn += 1) {
          const asked = inOrder.map((key) => acquisition(key, { retryWithinMs: 5_000 }));
          const { acquire } = await backend.execute({ acquire: asked }, LIMIT_MS);
          const renew = asked.map(({ key, holder }) => ({ key, holder, leaseMs: 30_000 }));
          const renewed = await backend.execute({ renew }, LIMIT_MS);
          const { release } = await backend.execute({ release: asked }, LIMIT_MS);
          const granted = acquire.map(({ kind }) => kind === 'granted');
          expect(acquire.filter(({ kind }) => kind === 'unknown')).toEqual([]);
          expect(renewed.renew.map(({ kind }) => kind === 'renewed')).toEqual(granted);
          expect(release.map(({ kind }) => kind === 'released')).toEqual(granted);
        }
      };
      await Promise.all([turns(ours, keys), turns(theirs, keys.toReversed()), turns(ours, keys)]);
    }));

  it('for one key take effect in their order, sent by the core', () =>
    open(storeOf(), async (ours) => {
      const [key] = keysOf(1) as [string];
      const parts = { backend: ours, backendUse: new BackendUse(ours), clock: systemClock };
      const batcher = new Batcher({ ...parts, timerWheel: new TimerWheel(systemClock) });
      const send = (kind: 'acquire' | 'release', request: AcquireRequest) =>
        new Promise<{ kind: string }>((onResult) =>
          batcher.send(new AwaitedRequest(kind, request, onResult)),
        );
      let present = acquisition(key);
      const answers = [send('acquire', present)];
      for (let turn = 0; turn < 20; turn += 1) {
        const next = acquisition(key);
        answers.push(send('release', present), send('acquire', next));
        present = next;
        if (turn % 5 === 0) await answers.at(-1);
      }
      const kinds = (await Promise.all(answers)).map((answer) => answer.kind);
      const eachTurn = Array.from({ length: 20 }, () => ['released', 'granted']).flat();
      expect(kinds).toEqual(['granted', ...eachTurn]);
    }));

  it('get results although no connection is left for the first ones', () =>
    open(storeOf(), async (ours) => {
      const calls = keysOf(300).map((key) => ours.execute({ acquire: [acquisition(key)] }, LIMIT_MS));
      for (const { acquire } of await Promise.all(calls)) expect(acquire[0]!.kind).toBe('granted');
    }));
});

describe.each(stores)('a grant on %s', (_, storeOf) => {
  it('reserves as many fencing tokens as were requested', () =>
    open(storeOf(), async (ours, theirs) => {
      const [key] = keysOf(1) as [string];
      const far = 1_000_000_000; // Farther than the clock goes meanwhile: only the block can tell.
      const first = acquisition(key, { tokenCount: far });
      const token = await granted(ours, first);
      expect((await theirs.inspect(key, LIMIT_MS))?.fencingToken).toBe(token);
      expect(await granted(ours, first)).toBe(token);
      await ours.execute({ release: [first] }, LIMIT_MS);
      const second = acquisition(key, { tokenCount: 3 });
      const next = await granted(theirs, second);
      expect(next).toBe(token + BigInt(far));
      for (const wrong of [next - 1n, next + 3n]) {
        expect(await ours.forceRelease(key, wrong, LIMIT_MS)).toBe(false);
      }
      expect(await ours.forceRelease(key, next + 2n, LIMIT_MS)).toBe(true);
      expect(await ours.inspect(key, LIMIT_MS)).toBeNull();
    }));

  it('that is repeated keeps the longer lease', () =>
    open(storeOf(), async (ours) => {
      for (const wish of [{}, { tick: { tickMs: Date.now(), maxEarlyMs: 60_000, staleAfterMs: 60_000 } }]) {
        const [key] = keysOf(1) as [string];
        const long = acquisition(key, { ...wish, leaseMs: 60_000 });
        const token = await granted(ours, long);
        expect(await granted(ours, { ...long, leaseMs: 1_000 })).toBe(token);
        expect((await ours.inspect(key, LIMIT_MS))?.remainingMs).toBeGreaterThan(30_000);
      }
    }));

  it('ends without hasWaiters if no process waits', () =>
    open(storeOf(), async (ours) => {
      const [key] = keysOf(1) as [string];
      for (let turn = 0; turn < 2; turn += 1) {
        const held = acquisition(key);
        await granted(ours, held);
        const { release } = await ours.execute({ release: [held] }, LIMIT_MS);
        expect(release.map((answer) => ({ ...answer }))).toEqual([{ kind: 'released' }]);
      }
    }));

  it('ends with hasWaiters if another process retried recently', () =>
    open(storeOf(), async (ours, theirs) => {
      const keys = keysOf(5);
      const held = keys.map((key) => acquisition(key));
      await ours.execute({ acquire: held }, LIMIT_MS);
      const waiters = keys.slice(0, 2).map((key) => acquisition(key, { retryWithinMs: 60_000 }));
      const passersBy = keys.slice(2, 3).map((key) => acquisition(key));
      await theirs.execute({ acquire: [...waiters, ...passersBy] }, LIMIT_MS);
      const tell = async (release: AcquireRequest[]) =>
        (await ours.execute({ release }, LIMIT_MS)).release.map((answer) => ({ ...answer }));
      const released = { kind: 'released' };
      expect(await tell(held.slice(0, 1))).toEqual([{ ...released, hasWaiters: true }]);
      expect(await tell([...held.slice(1), acquisition(keys[0]!)])).toEqual([
        { ...released, hasWaiters: true },
        ...[released, released, released],
        { kind: 'gone' },
      ]);
      const again = keys.map((key) => acquisition(key));
      await ours.execute({ acquire: again }, LIMIT_MS);
      expect(await tell(again)).toEqual(keys.map(() => released));
    }));
});

async function granted(backend: LockBackend, request: AcquireRequest): Promise<bigint> {
  const { acquire } = await backend.execute({ acquire: [request] }, LIMIT_MS);
  const [answer] = acquire;
  if (answer?.kind !== 'granted') throw new Error(`Expected a grant, got ${answer?.kind}.`);
  return answer.fencingToken;
}

const lockRow = {
  postgres: 'UPDATE distributed_lock SET instance = instance WHERE key = $1',
  mariadb: 'UPDATE distributed_lock SET instance = CONCAT(instance, 1) WHERE `key` = ?',
};

describe.each([
  ['postgres' as const, postgresStore],
  ['mariadb' as const, () => mariadbStore()],
])('a row that somebody else has locked, on %s,', (name, storeOf) => {
  it.concurrent(
    'keeps its own requests waiting, and no others',
    () =>
      open(storeOf(), async (ours) => {
        const keys = keysOf(8);
        const held = keys.map((key) => acquisition(key));
        await ours.execute({ acquire: held }, LIMIT_MS);
        await ours.execute({ release: held }, LIMIT_MS);
        const stranger = await new DataSource(dataSourceOptions(storeOf())).initialize();
        const runner = stranger.createQueryRunner();
        try {
          await runner.startTransaction();
          await runner.query(lockRow[name], [keys[3]]);
          const asked = keys.map((key) => acquisition(key));
          const { acquire } = await ours.execute({ acquire: asked }, 8_000);
          expect(acquire.map(({ kind }) => kind)).toEqual(
            keys.map((_, index) => (index === 3 ? 'unknown' : 'granted')),
          );
          await runner.rollbackTransaction();
          await until(async () => {
            const { acquire } = await ours.execute({ acquire: [asked[3]!] }, LIMIT_MS);
            return acquire[0]!.kind === 'granted';
          });
        } finally {
          await runner.release();
          await stranger.destroy();
        }
      }),
    60_000,
  );
});
