import { LEASE_MS } from '../locks/lock.options.js';
import { unlessAborted } from './interruption.js';
import { type Three, withReplicas } from './replicas.js';
import { type Result, killResult, saleResults, tickResults } from './results.js';
import { sellThroughKill } from './sale.js';
import { countTicks, nextTickMs, stayOpen } from './ticks.js';
import type { Warehouse } from './warehouse.js';

/** The flash sale as it should be: a rush, a kill in the middle of it, and a report that goes on each second. */
export async function runWithLock(warehouse: Warehouse, signal: AbortSignal): Promise<Result[]> {
  console.log(
    `A lock has a lease of ${LEASE_MS} ms here, so that the demonstration is short; the default is 30 000 ms.\n`,
  );
  const { sale, opening } = await withReplicas(warehouse.environment, (replicas) =>
    unlessAborted(signal, () => open(replicas, signal)),
  );
  const books = await warehouse.read();
  return [
    ...saleResults(sale, books),
    ...tickResults(countTicks(books.reports, opening, sale.kill)),
    killResult(sale.kill),
  ];
}

async function open(replicas: Three, signal: AbortSignal) {
  const firstTickMs = nextTickMs();
  const sale = await sellThroughKill(replicas);
  const opening = await stayOpen(firstTickMs, signal);
  return { sale, opening };
}
