import { describe, it } from '@jest/globals';
import { backendLaws } from '../../lib/testing/laws/backend-laws.js';
import type { LawBench } from '../../lib/testing/laws/law.js';

/** One test for each law, on the store of this bench. */
export const keepsTheLaws = (backend: string, bench: LawBench) =>
  describe(`${backend} keeps the laws`, () => {
    for (const law of backendLaws) it(law.title, () => law.check(bench));
  });

/** How each law went, or will have gone. */
export type Outcomes = ReadonlyMap<string, Promise<{ readonly error: unknown } | undefined>>;

/** Looks at one law after the other, so that several benches can do so side by side. */
export function lookAtTheLaws(bench: LawBench): Outcomes {
  const outcomes = new Map<string, Promise<{ readonly error: unknown } | undefined>>();
  let before: Promise<unknown> = Promise.resolve();
  for (const { title, check } of backendLaws) {
    const outcome = before
      .then(() => check(bench))
      .then(
        () => undefined,
        (error: unknown) => ({ error }),
      );
    outcomes.set(title, outcome);
    before = outcome;
  }
  return outcomes;
}

/** One test for each law that is looked at already. */
export const hasKeptTheLaws = (backend: string, outcomes: () => Outcomes) =>
  describe(`${backend} keeps the laws`, () => {
    for (const { title } of backendLaws) {
      it(title, async () => {
        const broken = await outcomes().get(title);
        if (broken) throw broken.error;
      });
    }
  });
