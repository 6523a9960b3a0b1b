import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Store } from '../../support/stores.js';
import { openLocks, sendToParent, task } from './worker-support.js';

/** Counts in two files, which only the locks keep equal, and tells what it reads in them. */
const { store, namespace, folder, writes, reads } = task() as {
  store: Store;
  namespace: string;
  folder: string;
  writes: number;
  reads: number;
};
const { app, locks } = await openLocks(store, namespace);
const [left, right] = [join(folder, 'left'), join(folder, 'right')];
const countIn = async (file: string) => Number(await readFile(file, 'utf8'));

async function write(): Promise<void> {
  for (let turn = 0; turn < writes; turn += 1)
    await locks.withLock('catalog', { mode: 'write', waitMs: 120_000 }, async () => {
      const next = String((await countIn(left)) + 1);
      await writeFile(left, next);
      await sleep(Math.random() * 3);
      await writeFile(right, next);
    });
}

async function read(): Promise<void> {
  for (let turn = 0; turn < reads; turn += 1)
    await locks.withLock('catalog', { mode: 'read', waitMs: 120_000 }, async () => {
      const leftCount = await countIn(left);
      await sleep(Math.random() * 3);
      sendToParent({ leftCount, rightCount: await countIn(right) });
    });
}

await Promise.all([write(), read(), read()]);
await app.close();
process.disconnect();
