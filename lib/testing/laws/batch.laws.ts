import assert from 'node:assert/strict';
import { LIMIT_MS, type Law, LONG_LEASE_MS, acquisition, known, law, nth, somebody } from './law.js';

/** Many requests in one call. */
export const batchLaws: readonly Law[] = [
  law('answers stand in the order of their requests', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const claims = Array.from({ length: 20 }, (_, index) => somebody(`${key}:${index}`));
    for (const [index, claim] of claims.entries()) {
      if (index % 3 === 0) await theirs.take(somebody(claim.key));
    }
    const { acquire } = await ours.backend.exchange(
      { acquire: claims.map((claim) => acquisition(claim)) },
      LIMIT_MS,
    );
    const expected = claims.map((_, index) => (index % 3 === 0 ? 'taken' : 'granted'));
    assert.deepEqual(
      acquire.map((answer) => answer.kind),
      expected,
    );
    const [given, kept] = [nth(claims, 1), claims.slice(2)];
    const { renew, release } = await ours.backend.exchange(
      {
        renew: kept.map((claim) => ({ ...claim, leaseMs: LONG_LEASE_MS })),
        release: [somebody(key), given],
      },
      LIMIT_MS,
    );
    assert.deepEqual(
      release.map((answer) => answer.kind),
      ['gone', 'released'],
    );
    assert.deepEqual(
      renew.map((answer) => answer.kind),
      kept.map((_, index) => ((index + 2) % 3 === 0 ? 'lost' : 'renewed')),
    );
  }),

  law('a thousand locks are taken, renewed and released together', async ({ key, open }) => {
    const asking = open();
    const claims = Array.from({ length: 1_000 }, (_, index) => somebody(`${key}:${index}`));
    const { acquire } = await asking.backend.exchange(
      { acquire: claims.map((claim) => acquisition(claim)) },
      LIMIT_MS,
    );
    assert(acquire.every((answer) => known(answer).kind === 'granted'));
    const renewals = claims.map((claim) => ({ ...claim, leaseMs: LONG_LEASE_MS }));
    const { renew } = await asking.backend.exchange({ renew: renewals }, LIMIT_MS);
    assert(renew.every((answer) => known(answer).kind === 'renewed'));
    const { release } = await asking.backend.exchange({ release: claims }, LIMIT_MS);
    assert(release.every((answer) => known(answer).kind === 'released'));
  }),

  law('a backend that was closed opens again when it is asked', async ({ key, open }) => {
    const asking = open();
    const claim = somebody(key);
    await asking.take(claim);
    await asking.backend.close();
    await asking.backend.close();
    assert.equal(await asking.release(claim), 'released');
  }),
];
