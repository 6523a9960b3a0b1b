import { beforeAll, describe, it } from '@jest/globals';
import { backendLaws } from '../../lib/testing/laws/backend-laws.js';
import type { LawBench } from '../../lib/testing/laws/law.js';

/** One test for each law, on the store of this bench. */
export const keepsTheLaws = (backend: string, bench: LawBench) =>
  describe(`${backend} keeps the laws`, () => {
    for (const law of backendLaws) it(law.title, () => law.check(bench));
  });

/** The same, but several laws are looked at together: many of them let a lease run out and do nothing meanwhile. */
export const keepsTheLawsTogether = (backend: string, bench: LawBench, atOnce = 4) =>
  describe(`${backend} keeps the laws`, () => {
    const checks = new Map<string, Promise<unknown>>();
    beforeAll(() => {
      const places: Promise<unknown>[] = Array.from({ length: atOnce }, () => Promise.resolve());
      for (const [index, law] of backendLaws.entries()) {
        // What went wrong is told by the test of that law.
        const outcome = places[index % atOnce]!.then(() => law.check(bench)).catch((error: unknown) => ({
          error,
        }));
        places[index % atOnce] = outcome;
        checks.set(law.title, outcome);
      }
    });
    for (const { title } of backendLaws) {
      it(title, async () => {
        const failed = (await checks.get(title)) as { error: unknown } | undefined;
        if (failed) throw failed.error;
      });
    }
  });
