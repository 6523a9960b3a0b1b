import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Store } from '../../support/stores.js';
import { openLocks, task } from './worker-support.js';

/** Transfers between random accounts. A balance is a file that is read and then written, so only the locks protect it. */
const { store, namespace, folder, accounts, transfers } = task() as {
  store: Store;
  namespace: string;
  folder: string;
  accounts: number;
  transfers: number;
};
const { app, locks } = await openLocks(store, namespace);
const randomAccount = () => Math.floor(Math.random() * accounts);
const add = async (account: number, amount: number) => {
  const file = join(folder, `${account}`);
  await writeFile(file, String(Number(await readFile(file, 'utf8')) + amount));
};
const transferAll = async (count: number) => {
  for (let left = count; left > 0; left -= 1) {
    const [from, to] = [randomAccount(), randomAccount()];
    await locks.withLock([`account:${from}`, `account:${to}`], { waitMs: 60_000 }, async () => {
      await add(from, -left);
      await add(to, left);
    });
  }
};
await Promise.all([transferAll(transfers / 2), transferAll(transfers / 2)]);
await app.close();
process.disconnect();
