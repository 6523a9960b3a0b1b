import { randomUUID } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { AcquireOptions } from '../../../lib/core/options.js';

const ACCOUNTS = 5;
const OPENING_BALANCE = 1_000;

/** What all accounts have together, whatever was transferred. */
export const SUM = ACCOUNTS * OPENING_BALANCE;

interface Transfers {
  /** The accounts: see {@link openAccounts}. */
  readonly folder: string;
  readonly transfers: number;
}

interface TransferLocks {
  withLock(keys: readonly string[], options: AcquireOptions, work: () => Promise<void>): Promise<void>;
}

/** Creates accounts in a folder of their own. A balance is a file that is read and then written, so only locks protect it. */
export function openAccounts(parent: string): string {
  const folder = join(parent, randomUUID());
  mkdirSync(folder);
  for (const account of accounts) writeFileSync(join(folder, account), String(OPENING_BALANCE));
  return folder;
}

export const sumOf = (folder: string): number =>
  accounts
    .map((account) => Number(readFileSync(join(folder, account), 'utf8')))
    .reduce((sum, balance) => sum + balance);

/** Transfers between random accounts, by two callers. */
export async function transferAll({ folder, transfers }: Transfers, locks: TransferLocks): Promise<void> {
  const add = async (account: string, amount: number) => {
    const file = join(folder, account);
    await writeFile(file, String(Number(await readFile(file, 'utf8')) + amount));
  };
  const call = async () => {
    for (let left = transfers / 2; left > 0; left -= 1) {
      const [from, to] = [randomAccount(), randomAccount()];
      await locks.withLock([`account:${from}`, `account:${to}`], { waitMs: 60_000 }, async () => {
        await add(from, -left);
        await add(to, left);
      });
    }
  };
  await Promise.all([call(), call()]);
}

const accounts = Array.from({ length: ACCOUNTS }, (_, account) => `${account}`);

const randomAccount = () => accounts[Math.floor(Math.random() * ACCOUNTS)]!;
