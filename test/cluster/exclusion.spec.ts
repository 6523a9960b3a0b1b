import { randomBytes, randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { withFencedTarget } from '../support/fencing/fenced-target.js';
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

interface Held {
  readonly fromMs: number;
  readonly toMs: number;
  readonly fencingToken: string;
}

const folder = tempFolder();
afterEach(endAllWorkers);

const stores: [string, () => Store][] = [
  ['redis', redisStore],
  ['postgres', postgresStore],
  ['mariadb', () => mariadbStore()],
  ['better-sqlite3', () => betterSqlite3Store(join(folder, 'locks.db'))],
];

describe.each(stores)('on %s', (_, storeOf) => {
  it('four processes never hold one lock at the same time, and fencing tokens grow', async () => {
    const task = { store: storeOf(), namespace: randomUUID(), key: 'one', turns: 15 };
    const workers = Array.from({ length: 4 }, () => startWorker<Held>('contend', task));
    expect(await Promise.all(workers.map(({ ended }) => ended))).toEqual([0, 0, 0, 0]);
    const held = workers.flatMap(({ messages }) => messages).sort((one, other) => one.fromMs - other.fromMs);
    expect(held).toHaveLength(4 * 2 * 15);
    for (const [index, next] of held.slice(1).entries()) {
      const before = held[index]!;
      expect(next.fromMs).toBeGreaterThan(before.toMs);
      expect(BigInt(next.fencingToken) > BigInt(before.fencingToken)).toBe(true);
    }
  }, 120_000);

  it('a waiter gets the lock of a holder that was killed, with a larger fencing token', async () => {
    const task = { store: storeOf(), namespace: randomUUID(), key: 'one', leaseMs: 1_500 };
    const holder = startWorker<{ fencingToken: string }>('hold', task);
    await until(() => holder.messages.length > 0);
    const waiter = startWorker<{ fencingToken: string }>('hold', task);
    holder.process.kill('SIGKILL');
    expect(await holder.ended).toBe('SIGKILL');
    await until(() => waiter.messages.length > 0);
    expect(BigInt(waiter.messages[0]!.fencingToken) > BigInt(holder.messages[0]!.fencingToken)).toBe(true);
  }, 60_000);

  it('a holder that was stopped past its lease knows it in its first line, and its write is refused', async () => {
    const store = storeOf();
    const place = { store, name: `spec_${randomBytes(4).toString('hex')}` };
    await withFencedTarget(place, async () => {
      const task = { store, namespace: randomUUID(), key: 'one', leaseMs: 1_500, place };
      const holder = startWorker<object>('hold', task);
      await until(() => holder.messages.length > 0);
      holder.process.kill('SIGSTOP');
      holder.process.send('write');
      const next = startWorker<object>('hold', task);
      await until(() => next.messages.length > 0);
      next.process.send('write');
      await until(() => next.messages.length > 1);
      expect(next.messages[1]).toMatchObject({ isWritten: true });
      holder.process.kill('SIGCONT');
      await until(() => holder.messages.length > 1);
      const asLost = { isValid: false, isAborted: true, reason: 'LockLostError', isWritten: false };
      expect(holder.messages[1]).toEqual(asLost);
    });
  }, 60_000);

  it('an application that closes lets its holder finish, sends its waiter away, and exits by itself', async () => {
    const worker = startWorker<object>('close', { store: storeOf(), namespace: randomUUID() });
    expect(await worker.ended).toBe(0);
    expect(worker.messages).toEqual([{ waiter: 'LockShutdownError' }, { holder: 'finished' }]);
  }, 60_000);
});
