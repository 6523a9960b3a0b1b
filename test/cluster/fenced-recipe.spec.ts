import { randomBytes, randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { STEPS, type Step, fencedCounters } from '../support/fencing/fenced-counter.js';
import {
  type Store,
  betterSqlite3Store,
  mariadbStore,
  postgresStore,
  redisStore,
} from '../support/stores.js';
import { tempFolder } from '../support/temp-folder.js';
import { until } from '../support/until.js';
import { endAllWorkers, startWorker } from './start-worker.js';
import { openLocks } from './workers/worker-support.js';

interface Message {
  readonly key: string;
  readonly at?: Step;
  readonly reason?: string;
  readonly isWritten?: boolean;
}

const folder = tempFolder();
afterEach(endAllWorkers);

const stores: [string, () => Store][] = [
  ['redis', redisStore],
  ['postgres', postgresStore],
  ['mariadb', () => mariadbStore()],
  ['better-sqlite3', () => betterSqlite3Store(join(folder, 'locks.db'))],
];

/** At which step of its successor a stopped holder wakes up. */
const MOMENTS = [...STEPS, 'ended'] as const;

describe.each(stores)('the recipe of fenced reads and writes on %s', (_, storeOf) => {
  it('loses no update, wherever its holder is stopped and wherever it wakes up', async () => {
    const [store, namespace] = [storeOf(), randomUUID()];
    const name = `spec_${randomBytes(4).toString('hex')}`;
    await using counters = await fencedCounters(store, name);
    await counters.create(STEPS.flatMap((stoppedAt) => MOMENTS.map((moment) => `${stoppedAt} ${moment}`)));
    const { app, locks } = await openLocks(store, namespace);
    const play = async (stoppedAt: Step) => {
      const keys = MOMENTS.map((moment) => `${stoppedAt} ${moment}`);
      const task = { store, namespace, name, keys, leaseMs: 1_500, stayAt: stoppedAt };
      const old = startWorker<Message>('increment', task);
      await until(() => old.messages.length === keys.length);
      expect(old.messages.filter(({ at }) => at === stoppedAt)).toHaveLength(keys.length);
      old.process.kill('SIGSTOP');
      old.process.send('go on');
      const endOf = (key: string) => old.messages.find((message) => message.key === key && !message.at);
      let there = 0;
      /** The old holder wakes up once each successor is where it shall meet it. */
      const meet = async (key: string) => {
        there += 1;
        if (there === keys.length) old.process.kill('SIGCONT');
        await until(() => endOf(key) !== undefined);
      };
      await Promise.all(
        MOMENTS.map(async (moment, index) => {
          const key = keys[index]!;
          await counters.increment(locks, key, {
            leaseMs: 30_000,
            onStep: async (step) => (step === moment ? meet(key) : undefined),
          });
          if (moment === 'ended') await meet(key);
          expect(endOf(key)).toMatchObject({ reason: 'LockLostError' });
          const written = endOf(key)!.isWritten ? 2 : 1;
          expect({ key, count: await counters.read(key) }).toEqual({ key, count: written });
        }),
      );
      expect(await old.ended).toBe(0);
    };
    // All of them, so that none still uses the table when it is dropped.
    const plays = await Promise.allSettled(STEPS.map(play));
    await app.close();
    expect(plays.filter(({ status }) => status === 'rejected')).toEqual([]);
    await counters.drop();
  }, 240_000);
});
