import { inspect } from 'node:util';
import fc from 'fast-check';
import { propertyRuns } from './property-runs.js';
import { type Mismatch, compareBackends } from './backend-comparison.js';
import { type OpenBackendPair, uniqueRunName } from './backend-pairs.js';

/**
 * Lets a store play so many plays side by side. If it once tells anything else than its reference, that play is made as
 * short as can be and told.
 */
export async function checkProperty(
  stores: OpenBackendPair,
  { seed, count }: { seed: number; count: number },
): Promise<void> {
  const runs = propertyRuns(stores.config);
  const sample = fc.sample(runs, { numRuns: count, seed });
  const mismatch = await compareBackends(stores, sample, uniqueRunName());
  if (!mismatch) return;
  const failed = sample[mismatch.run]!;
  const alone = fc.asyncProperty(runs, async (run) => {
    const again = await compareBackends(stores, [run], uniqueRunName());
    if (again) throw new Error(formatMismatch(again));
  });
  await fc.assert(alone, { examples: [[failed]], numRuns: 1, seed });
  throw new Error(
    `Only among others, with seed ${seed}: ${formatMismatch(mismatch)} in ${inspect(failed, { depth: 4 })}`,
  );
}

const formatMismatch = ({ step, operation, expected, got }: Mismatch) =>
  `in scene ${step}, ${inspect(operation)}: expected ${inspect(expected)}, got ${inspect(got)}`;
