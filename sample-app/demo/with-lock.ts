import { LEASE_MS } from '../locks/lock.options.js';
import { countDispatches } from './dispatches.js';
import { unlessAborted } from './interruption.js';
import { untilDispatched } from './leader.js';
import { type ThreeReplicas, withReplicas } from './replicas.js';
import { type Result, dispatchResults, killResults, saleResults, tickResults } from './results.js';
import { sellThroughKill } from './sale.js';
import { countTicks, nextTickMs, stayOpen } from './ticks.js';
import type { Warehouse } from './warehouse.js';

/** The flash sale as it should be: a rush, a kill in the middle of it, and a report and a crontab that go on. */
export async function runWithLock(warehouse: Warehouse, signal: AbortSignal): Promise<Result[]> {
  console.log(
    `A lock has a lease of ${LEASE_MS} ms here, so that the demonstration is short; the default is 30 000 ms.\n`,
  );
  const { sale, opening } = await withReplicas(warehouse.environment, (replicas) =>
    unlessAborted(signal, () => runSale(replicas, signal)),
  );
  const books = await warehouse.read();
  return [
    ...saleResults(sale, books),
    ...tickResults(countTicks(books.reports, opening, sale.kill)),
    ...dispatchResults(countDispatches(books.dispatches, opening, sale.kill)),
    ...killResults(sale.kill),
  ];
}

async function runSale(replicas: ThreeReplicas, signal: AbortSignal) {
  const firstTickMs = nextTickMs();
  const sale = await sellThroughKill(replicas);
  const opening = await stayOpen(firstTickMs, signal);
  await untilDispatched(opening.lastTickMs, sale.kill.survivor);
  return { sale, opening };
}
