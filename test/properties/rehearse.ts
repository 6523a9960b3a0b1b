import { inspect } from 'node:util';
import fc from 'fast-check';
import { plays } from './plays.js';
import { type Mismatch, replay } from './replay.js';
import { type OpenStage, nameOfRun } from './stages.js';

/**
 * Lets a store play so many plays side by side. If it once tells anything else than its reference, that play is made as
 * short as can be and told.
 */
export async function rehearse(
  stage: OpenStage,
  { seed, count }: { seed: number; count: number },
): Promise<void> {
  const kinds = plays(stage.terms);
  const sample = fc.sample(kinds, { numRuns: count, seed });
  const mismatch = await replay(stage, sample, nameOfRun());
  if (!mismatch) return;
  const failed = sample[mismatch.play]!;
  const alone = fc.asyncProperty(kinds, async (play) => {
    const again = await replay(stage, [play], nameOfRun());
    if (again) throw new Error(told(again));
  });
  await fc.assert(alone, { examples: [[failed]], numRuns: 1, seed });
  throw new Error(
    `Only among others, with seed ${seed}: ${told(mismatch)} in ${inspect(failed, { depth: 4 })}`,
  );
}

const told = ({ scene, ask, expected, got }: Mismatch) =>
  `in scene ${scene}, ${inspect(ask)}: expected ${inspect(expected)}, got ${inspect(got)}`;
