import { unlessAborted } from './interruption.js';
import { withReplicas } from './replicas.js';
import { type Result, unlockedSaleResults } from './results.js';
import { sellInPeace } from './sale.js';
import type { Warehouse } from './warehouse.js';

/** The same rush without the lock. It must go wrong: else the other demonstration would prove nothing. */
export async function runWithoutLock(warehouse: Warehouse, signal: AbortSignal): Promise<Result[]> {
  const responses = await withReplicas(warehouse.environment, (replicas) =>
    unlessAborted(signal, () => sellInPeace(replicas)),
  );
  return unlockedSaleResults(responses, await warehouse.read());
}
