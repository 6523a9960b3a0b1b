import { randomUUID } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { startRedisQuorum, stopAll } from '../services/redis-quorum.js';
import type { Service } from '../services/service.js';
import { bareLocks } from '../support/bare-locks.js';
import type { ContentionMessage, Hold } from '../support/kinds/contention.js';
import { SUM, openAccounts, sumOf } from '../support/kinds/transfers.js';
import { permitOverlaps, writerOverlaps } from '../support/kinds/holds.js';
import { onceReachable } from '../support/once-reachable.js';
import { type Store, backendOn, betterSqlite3Store, postgresStore, redisStore } from '../support/stores.js';
import { tempFolder } from '../support/temp-folder.js';
import { until } from '../support/until.js';
import { type Worker, endAllWorkers, startWorker } from './start-worker.js';

interface Counts {
  readonly leftCount: number;
  readonly rightCount: number;
}

const folder = tempFolder();
let servers: readonly Service[] = [];
beforeAll(async () => {
  servers = await startRedisQuorum(3);
});
afterEach(endAllWorkers);
afterAll(() => stopAll(servers));

const stores: [string, () => Store][] = [
  ['redis', redisStore],
  ['postgres', postgresStore],
  ['better-sqlite3', () => betterSqlite3Store(join(folder, 'locks.db'))],
];

/** What the processes surely held. Fails if an acquisition failed. */
function holdsOf(workers: readonly Worker<ContentionMessage>[]): readonly Hold[] {
  const messages = workers.flatMap((worker) => worker.messages);
  expect(messages.filter(({ failed }) => failed !== undefined)).toEqual([]);
  return messages.flatMap(({ held }) => held ?? []);
}

/** Creates two files that count the same writes. */
function openCounts(): string {
  const counts = join(folder, randomUUID());
  mkdirSync(counts);
  for (const name of ['left', 'right']) writeFileSync(join(counts, name), '0');
  return counts;
}

/** Starting processes is slow, so the quorum has only the tests of processes that are stopped and killed. */
const quorum: [string, () => Store] = ['quorum', () => ({ quorum: { at: servers.map(({ url }) => url) } })];

describe.each([...stores, quorum])('processes that are stopped and killed, on %s', (name, storeOf) => {
  /** Lets four processes contend, of which one is stopped for a while and one is killed. `others` are left alone. */
  async function contend(callers: readonly object[]) {
    const task = { store: storeOf(), namespace: randomUUID(), callers, leaseMs: 4_000, turns: 10 };
    const workers = Array.from({ length: 4 }, () =>
      startWorker<ContentionMessage>('contend-for-kinds', task),
    );
    const [stopped, killed, ...others] = workers;
    await until(() => workers.every(({ messages }) => messages.length > 2));
    // One that stops within a transaction of SQLite keeps all others from the file.
    if (name !== 'better-sqlite3') stopped!.process.kill('SIGSTOP');
    killed!.process.kill('SIGKILL');
    expect(await Promise.all(others.map(({ ended }) => ended))).toEqual([0, 0]);
    stopped!.process.kill('SIGCONT');
    expect(await stopped!.ended).toBe(0);
    return { workers, others };
  }

  it('no permit is held twice, and a process that is stopped or killed gives its permit back', async () => {
    const { workers } = await contend(Array.from({ length: 3 }, () => ({ permits: 3 })));
    const holds = holdsOf(workers);
    expect(holds.every(({ permit }) => permit >= 0 && permit < 3)).toBe(true);
    expect(permitOverlaps(holds)).toEqual([]);
  }, 240_000);

  it('a writer is alone, also when a process is stopped and one is killed', async () => {
    const { workers, others } = await contend([{ mode: 'write' }, { mode: 'read' }, { mode: 'read' }]);
    for (const other of others) expect(holdsOf([other]).some(({ mode }) => mode === 'write')).toBe(true);
    expect(writerOverlaps(holdsOf(workers))).toEqual([]);
  }, 240_000);
});

describe.each(stores)('on %s', (_, storeOf) => {
  it('transfers in any order neither deadlock nor change the sum', async () => {
    const accounts = openAccounts(folder);
    const task = { store: storeOf(), namespace: randomUUID(), folder: accounts };
    const workers = Array.from({ length: 3 }, () => startWorker('transfer', { ...task, transfers: 25 }));
    expect(await Promise.all(workers.map(({ ended }) => ended))).toEqual(Array(3).fill(0));
    expect(sumOf(accounts)).toBe(SUM);
  }, 240_000);

  it('calls that do not wait get a permit each while there are enough', async () => {
    const [store, namespace] = [storeOf(), randomUUID()];
    const processes = Array.from({ length: 8 }, (_, index) =>
      bareLocks({ backend: backendOn(store), namespace, instance: `process ${index}` }),
    );
    try {
      for (let round = 0; round < 15; round += 1) {
        const options = { permits: 16 };
        const granted = await Promise.all(
          processes.map((locks) => onceReachable(() => locks.tryAcquire(`key ${round}`, options))),
        );
        expect(new Set(granted.map((lock) => lock?.permit)).size).toBe(8);
        expect(granted).not.toContain(null);
        for (const lock of granted) await lock!.release();
      }
    } finally {
      for (const locks of processes) await locks.close();
    }
  }, 120_000);

  it('readers never read half of a write, and no write is lost', async () => {
    const counts = openCounts();
    const task = { store: storeOf(), namespace: randomUUID(), folder: counts, writes: 20, reads: 20 };
    const workers = Array.from({ length: 3 }, () => startWorker<Counts>('read-and-write', task));
    expect(await Promise.all(workers.map(({ ended }) => ended))).toEqual(Array(3).fill(0));
    const seen = workers.flatMap(({ messages }) => messages);
    expect(seen).toHaveLength(3 * 2 * task.reads);
    expect(seen.filter(({ leftCount, rightCount }) => leftCount !== rightCount)).toEqual([]);
    expect(readFileSync(join(counts, 'right'), 'utf8')).toBe(String(3 * task.writes));
  }, 240_000);

  it('all locks of a process that was killed are granted again', async () => {
    const task = { store: storeOf(), namespace: randomUUID(), leaseMs: 2_000, permits: 3 };
    const holder = startWorker<object>('hold-every-kind', { ...task, toRead: 'one', toWrite: 'two' });
    await until(() => holder.messages.length > 0);
    holder.process.kill('SIGKILL');
    const next = startWorker<object>('hold-every-kind', { ...task, toRead: 'two', toWrite: 'one' });
    await until(() => next.messages.length > 0);
    expect([...holder.messages, ...next.messages]).toEqual(Array(2).fill({ hasBoth: false, permits: 3 }));
  }, 60_000);
});
