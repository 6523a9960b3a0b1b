import { randomBytes, randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from '@jest/globals';
import { STEPS, type Step, fencedCounters } from '../fenced-counter.js';
import { type Store, betterSqlite3Store, mariadbStore, postgresStore, redisStore } from '../stores.js';
import { tempFolder } from '../temp-folder.js';
import { until } from '../until.js';
import { endAll, startWorker } from './start-worker.js';
import { locksOn } from './workers/locks-of.js';

interface Message {
  readonly at?: Step;
  readonly isWritten?: boolean;
}

const folder = tempFolder();
afterEach(endAll);

const stores: [string, () => Store][] = [
  ['redis', redisStore],
  ['postgres', postgresStore],
  ['mariadb', () => mariadbStore()],
  ['better-sqlite3', () => betterSqlite3Store(join(folder, 'locks.db'))],
];

/** Where the old holder is stopped, and at which step of its successor it wakes up. */
const CASES = STEPS.flatMap((stoppedAt) =>
  ([...STEPS, 'ended'] as const).map((resumedAt) => ({ stoppedAt, resumedAt })),
);

describe.each(stores)('the recipe of fenced reads and writes on %s', (_, storeOf) => {
  it('loses no update, wherever its holder is stopped and wherever it wakes up', async () => {
    const [store, namespace] = [storeOf(), randomUUID()];
    const name = `spec_${randomBytes(4).toString('hex')}`;
    const keyOf = ({ stoppedAt, resumedAt }: (typeof CASES)[number]) => `${stoppedAt} ${resumedAt}`;
    await using counters = await fencedCounters(store, name);
    await counters.create(CASES.map(keyOf));
    const { app, locks } = await locksOn(store, namespace);
    try {
      const leaseMs = 1_500;
      const playOne = async ({ stoppedAt, resumedAt }: (typeof CASES)[number]) => {
        const key = keyOf({ stoppedAt, resumedAt });
        const task = { store, namespace, name, key, leaseMs, stayAt: [stoppedAt] };
        const old = startWorker<Message>('increment', task);
        await until(() => old.messages.length > 0);
        old.process.kill('SIGSTOP');
        old.process.send('go on');
        const resume = async () => {
          old.process.kill('SIGCONT');
          await until(() => old.messages.length > 1);
        };
        await counters.increment(locks, key, {
          leaseMs: 30_000,
          onStep: async (step) => (step === resumedAt ? resume() : undefined),
        });
        if (resumedAt === 'ended') await resume();
        expect(old.messages[1]).toMatchObject({ reason: 'LockLostError' });
        const written = old.messages[1]!.isWritten ? 2 : 1;
        expect({ key, count: await counters.read(key) }).toEqual({ key, count: written });
        expect(await old.ended).toBe(0);
      };
      for (const step of STEPS) {
        await Promise.all(CASES.filter(({ stoppedAt }) => stoppedAt === step).map(playOne));
      }
    } finally {
      await app.close();
      await counters.drop();
    }
  }, 240_000);
});
