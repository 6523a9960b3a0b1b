/** The demonstration behind `npm run sample`. */
import { Command } from 'commander';
import { interruption } from './demo/interruption.js';
import { serve, showBoard } from './demo/serve.js';
import { print } from './demo/table.js';
import { Warehouse } from './demo/warehouse.js';
import { runWithLock } from './demo/with-lock.js';
import { runWithoutLock } from './demo/without-lock.js';

/** How a shell tells that Ctrl-C ended a program. */
const INTERRUPTED = 130;

const PLACES = {
  sqlite: 'stock and locks in two SQLite files',
  redis: 'stock in one SQLite file, locks in Redis',
  postgres: 'stock and locks in PostgreSQL',
  mariadb: 'stock and locks in MariaDB',
};

const options = new Command('sample')
  .description(
    'A flash sale on three replicas. SAMPLE_BACKEND=redis|postgres|mariadb and SAMPLE_URL choose the store.',
  )
  .option('--without-lock', 'sell without the lock, and see it go wrong', false)
  .option('--serve', 'keep the replicas up, to play with', false)
  .option('--board', 'keep the replicas up, and print where the page of their locks is', false)
  .parse()
  .opts<{ withoutLock: boolean; serve: boolean; board: boolean }>();

const signal = interruption();
try {
  process.exitCode = (await demonstrate()) ? 0 : 1;
} catch (error) {
  if (!signal.aborted) console.error(error instanceof Error ? error.message : error);
  process.exitCode = signal.aborted ? INTERRUPTED : 1;
}

/** Answers whether all was as it should be. */
async function demonstrate(): Promise<boolean> {
  await using warehouse = await Warehouse.open(options);
  console.log(`Three replicas of a shop, each a process of its own; ${PLACES[warehouse.settings.backend]}.`);
  if (options.serve || options.board) {
    await (options.serve ? serve : showBoard)(warehouse, signal);
    return true;
  }
  const results = await (options.withoutLock ? runWithoutLock : runWithLock)(warehouse, signal);
  const isAsExpected = print(results);
  if (isAsExpected) {
    console.log(
      options.withoutLock
        ? 'Without the lock the shop sold what it did not have, which is the point. `npm run sample` does it with the lock.'
        : 'All as it should be. `npm run sample -- --without-lock` shows what happens without the lock.',
    );
  }
  return isAsExpected;
}
