import { describe, it } from '@jest/globals';
import { backendLaws } from '../../lib/testing/laws/backend-laws.js';
import type { LawBench } from '../../lib/testing/laws/law.js';

/** One test for each law, on the store of this bench. */
export const keepsTheLaws = (backend: string, bench: LawBench) =>
  describe(`${backend} keeps the laws`, () => {
    for (const law of backendLaws) it(law.title, () => law.check(bench));
  });
