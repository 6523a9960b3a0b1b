import { afterAll, describe, expect, it } from 'vitest';
import { tempFolder } from '../support/temp-folder.js';
import { type OpenBackendPair, backendPairsIn } from './backend-pairs.js';
import { checkProperty } from './property-check.js';

/** Many more, with other seeds: `npm run properties`. */
const PLAYS = { seed: 1, count: 300 };

describe.each(backendPairsIn(tempFolder()))('%s answers as its reference', (_, open) => {
  let stage: OpenBackendPair | undefined;
  afterAll(() => stage?.close());

  it(`in ${PLAYS.count} plays`, async () => {
    stage = await open();
    await expect(checkProperty(stage, PLAYS)).resolves.toBeUndefined();
  }, 120_000);
});
