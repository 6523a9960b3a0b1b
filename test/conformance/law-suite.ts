import { afterAll, beforeAll, describe, it } from '@jest/globals';
import { backendLaws } from '../../lib/testing/laws/backend-laws.js';
import type { LawBench } from '../../lib/testing/laws/law.js';

/** For all laws of one bench. */
const TIMEOUT_MS = 120_000;

/** How each law went, or will have gone. */
export type Outcomes = ReadonlyMap<string, Promise<{ readonly error: unknown } | undefined>>;

/** Looks at one law after the other, so that several benches can do so side by side. */
export function startLaws(bench: LawBench): Outcomes {
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

/** One test for each law that was started already. */
export const describeLawOutcomes = (backend: string, outcomes: () => Outcomes) =>
  describe(`${backend} keeps the laws`, () => {
    for (const { title } of backendLaws) {
      it(title, async () => {
        const broken = await outcomes().get(title);
        if (broken) throw broken.error;
      });
    }
  });

/** One test for each law. The benches of one describe block run at the same time: laws mostly wait for leases to end. */
export function describeLaws(backend: string, bench: LawBench): void {
  let outcomes: Outcomes = new Map();
  beforeAll(() => {
    outcomes = startLaws(bench);
  });
  // If only some tests were selected, this waits for the laws that still run.
  afterAll(() => Promise.all(outcomes.values()), TIMEOUT_MS);
  describeLawOutcomes(backend, () => outcomes);
}
