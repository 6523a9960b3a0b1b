import { afterAll, beforeAll, describe, it } from 'vitest';
import { backendLaws } from '../../lib/testing/laws/backend-laws.js';
import type { Law, LawBench } from '../../lib/testing/laws/law.js';
import { tickCaseLaws } from '../../lib/testing/laws/tick.laws.js';

/** For all laws of one bench. */
const TIMEOUT_MS = 120_000;
/** How many laws of a bench run at the same time. Each has keys of its own, and most of them wait for leases to end. */
const LANES = 4;

/**
 * The laws that a setting, a driver or a topology could break. The cases of ticks are left out: they check the text of
 * a script or the code of the verdict, so one store of each implementation suffices.
 */
export const lawsOfSettings: readonly Law[] = backendLaws.filter((law) => !tickCaseLaws.includes(law));

/** How each law went, or will have gone. */
export type Outcomes = ReadonlyMap<string, Promise<{ readonly error: unknown } | undefined>>;

interface LawRun {
  /** @default backendLaws */
  readonly laws?: readonly Law[];
  /** @default 4 */
  readonly lanes?: number;
}

/** Starts the laws. Several benches can be tested side by side. */
export function startLaws(bench: LawBench, { laws = backendLaws, lanes = LANES }: LawRun = {}): Outcomes {
  const outcomes = new Map<string, Promise<{ readonly error: unknown } | undefined>>();
  const lastOfLane: Promise<unknown>[] = [];
  for (const [index, { title, check }] of laws.entries()) {
    const outcome = Promise.resolve(lastOfLane[index % lanes])
      .then(() => check(bench))
      .then(
        () => undefined,
        (error: unknown) => ({ error }),
      );
    outcomes.set(title, outcome);
    lastOfLane[index % lanes] = outcome;
  }
  return outcomes;
}

/** One test for each law that was started already. */
export const describeLawOutcomes = (backend: string, outcomes: () => Outcomes, laws = backendLaws) =>
  describe(`${backend} keeps the laws`, () => {
    for (const { title } of laws) {
      it(
        title,
        async () => {
          const broken = await outcomes().get(title);
          if (broken) throw broken.error;
        },
        TIMEOUT_MS,
      );
    }
  });

/** One test for each law. The benches of one describe block run at the same time. */
export function describeLaws(backend: string, bench: LawBench, run: LawRun = {}): void {
  let outcomes: Outcomes = new Map();
  beforeAll(() => {
    outcomes = startLaws(bench, run);
  });
  // If only some tests were selected, this waits for the laws that still run.
  afterAll(() => Promise.all(outcomes.values()), TIMEOUT_MS);
  describeLawOutcomes(backend, () => outcomes, run.laws);
}
