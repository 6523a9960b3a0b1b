import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import { checkProperty } from './property-check.js';
import { type OpenBackendPair, backendPairsIn } from './backend-pairs.js';

/** `npm run properties -- --plays 100000`: many plays on each store, each batch from the next seed. */
const { seed, plays, only } = new Command('properties')
  .option('--seed <number>', 'of the first batch', whole, Date.now() % 1_000_000_000)
  .option('--plays <number>', 'how many on each store', whole, 10_000)
  .option('--only <text>', 'the stores with this text in their name', '')
  .parse()
  .opts<{ seed: number; plays: number; only: string }>();

const BATCH = 500;

const folder = await mkdtemp(join(tmpdir(), 'distributed-lock-plays-'));
try {
  for (const [name, open] of backendPairsIn(folder)) {
    if (name.includes(only)) await checkStore(name, open);
  }
} finally {
  await rm(folder, { recursive: true, force: true });
}

async function checkStore(name: string, open: () => Promise<OpenBackendPair>): Promise<void> {
  const stores = await open();
  const startedAt = performance.now();
  try {
    for (let done = 0; done < plays; done += BATCH) {
      await checkProperty(stores, { seed: seed + done / BATCH, count: Math.min(BATCH, plays - done) });
    }
    const seconds = Math.round((performance.now() - startedAt) / 1_000);
    console.log(`${name}: ${plays} plays from seed ${seed} on, ${seconds} s, no difference`);
  } catch (error) {
    console.log(`${name}: ${(error as Error).message}`);
    process.exitCode = 1;
  } finally {
    await stores.close();
  }
}

function whole(text: string): number {
  const number = Number(text);
  if (Number.isSafeInteger(number) && number >= 0) return number;
  throw new InvalidArgumentError(`Expected a whole number, but got "${text}".`);
}
