import { batchLaws } from './batch.laws.js';
import { deadRunLaws } from './dead-run.laws.js';
import { grantLaws } from './grant.laws.js';
import { historyLaws } from './history.laws.js';
import type { Law } from './law.js';
import { listLaws } from './list.laws.js';
import { leaseLaws } from './lease.laws.js';
import { pauseLaws } from './pause.laws.js';
import { queueLaws } from './queue.laws.js';
import { tickLaws } from './tick.laws.js';
import { tokenLaws } from './token.laws.js';

/**
 * The laws: one test for each promise of `LockBackend`, in a form that any test runner can run.
 *
 * ```ts
 * for (const law of backendLaws) it(law.title, () => law.check({ open: () => myBackend(store), forget }));
 * ```
 */
export const backendLaws: readonly Law[] = [
  ...grantLaws,
  ...leaseLaws,
  ...tokenLaws,
  ...queueLaws,
  ...tickLaws,
  ...deadRunLaws,
  ...pauseLaws,
  ...historyLaws,
  ...listLaws,
  ...batchLaws,
];
