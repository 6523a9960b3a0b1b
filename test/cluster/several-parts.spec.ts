import { randomUUID } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { bareLocks } from '../support/bare-locks.js';
import {
  type Store,
  backendOn,
  betterSqlite3Store,
  etcdStore,
  mariadbStore,
  postgresStore,
  redisStore,
} from '../support/stores.js';
import { tempFolder } from '../support/temp-folder.js';
import { until } from '../support/until.js';
import { endAllWorkers, startWorker } from './start-worker.js';

interface Held {
  readonly permit: number;
  readonly fromMs: number;
  readonly toMs: number;
}

const folder = tempFolder();
afterEach(endAllWorkers);

const stores: [string, () => Store][] = [
  ['redis', redisStore],
  ['etcd', etcdStore],
  ['postgres', postgresStore],
  ['mariadb', () => mariadbStore()],
  ['better-sqlite3', () => betterSqlite3Store(join(folder, 'locks.db'))],
];

const ACCOUNTS = 5;

/** Creates the accounts, each with 1,000. */
function openAccounts(): string {
  const accounts = join(folder, randomUUID());
  mkdirSync(accounts);
  for (let account = 0; account < ACCOUNTS; account += 1) writeFileSync(join(accounts, `${account}`), '1000');
  return accounts;
}

const sumOf = (accounts: string) =>
  Array.from({ length: ACCOUNTS }, (_, account) =>
    Number(readFileSync(join(accounts, `${account}`), 'utf8')),
  ).reduce((sum, balance) => sum + balance);

/** Fails if a permit was held twice at one time. */
function expectNoOverlap(held: readonly Held[], permit: number): void {
  const ofPermit = held.filter((each) => each.permit === permit).sort((one, two) => one.fromMs - two.fromMs);
  for (const [index, next] of ofPermit.slice(1).entries())
    expect(next.fromMs).toBeGreaterThan(ofPermit[index]!.toMs);
}

describe.each(stores)('on %s', (name, storeOf) => {
  it('transfers in any order neither deadlock nor change the sum', async () => {
    const accounts = openAccounts();
    const task = { store: storeOf(), namespace: randomUUID(), folder: accounts, accounts: ACCOUNTS };
    const workers = Array.from({ length: 4 }, () => startWorker('transfer', { ...task, transfers: 20 }));
    expect(await Promise.all(workers.map(({ ended }) => ended))).toEqual(Array(4).fill(0));
    expect(sumOf(accounts)).toBe(ACCOUNTS * 1_000);
  }, 240_000);

  it('no permit is held twice, and a process that is stopped or killed gives its permit back', async () => {
    const task = { store: storeOf(), namespace: randomUUID(), permits: 3, leaseMs: 4_000, turns: 10 };
    const workers = Array.from({ length: 5 }, () => startWorker<Held>('contend-for-permits', task));
    const [stopped, killed, ...others] = workers;
    await until(() => workers.every(({ messages }) => messages.length > 1));
    // One that stops within a transaction of SQLite keeps all others from the file.
    if (name !== 'better-sqlite3') stopped!.process.kill('SIGSTOP');
    killed!.process.kill('SIGKILL');
    expect(await Promise.all(others.map(({ ended }) => ended))).toEqual([0, 0, 0]);
    stopped!.process.kill('SIGCONT');
    expect(await stopped!.ended).toBe(0);
    const held = workers.flatMap(({ messages }) => messages);
    expect(held.every(({ permit }) => permit >= 0 && permit < task.permits)).toBe(true);
    for (let permit = 0; permit < task.permits; permit += 1) expectNoOverlap(held, permit);
  }, 240_000);

  it('calls that do not wait get a permit each while there are enough', async () => {
    const [store, namespace] = [storeOf(), randomUUID()];
    const processes = Array.from({ length: 8 }, (_, index) =>
      bareLocks({ backend: backendOn(store), namespace, instance: `process ${index}` }),
    );
    try {
      // A connection each: a call that does not wait gives up soon.
      await Promise.all(processes.map((locks) => locks.withLock('connect', {}, () => undefined)));
      for (let round = 0; round < 15; round += 1) {
        const options = { permits: 16 };
        const granted = await Promise.all(
          processes.map((locks) => locks.tryAcquire(`key ${round}`, options)),
        );
        expect(new Set(granted.map((lock) => lock?.permit)).size).toBe(8);
        expect(granted).not.toContain(null);
        for (const lock of granted) await lock!.release();
      }
    } finally {
      for (const locks of processes) await locks.close();
    }
  }, 120_000);

  it('the permits of a holder that was killed are granted again', async () => {
    const task = { store: storeOf(), namespace: randomUUID(), permits: 3, leaseMs: 2_000 };
    const holder = startWorker<object>('hold-permits', task);
    await until(() => holder.messages.length > 0);
    holder.process.kill('SIGKILL');
    const next = startWorker<object>('hold-permits', task);
    await until(() => next.messages.length > 0);
    expect(next.messages).toEqual([{ held: 3 }]);
  }, 60_000);
});
