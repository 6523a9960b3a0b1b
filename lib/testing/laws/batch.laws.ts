import assert from 'node:assert/strict';
import { LIMIT_MS, type Law, LONG_LEASE_MS, acquisition, known, law, somebody, nth } from './law.js';

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
    const { renew, release } = await ours.backend.exchange(
      {
        renew: claims.map((claim) => ({ ...claim, leaseMs: LONG_LEASE_MS })),
        release: [somebody(key), nth(claims, 1)],
      },
      LIMIT_MS,
    );
    assert.deepEqual(
      release.map((answer) => answer.kind),
      ['gone', 'released'],
    );
    const kept = claims.map((_, index) => (index % 3 === 0 || index === 1 ? 'lost' : 'renewed'));
    assert.deepEqual(
      renew.map((answer) => answer.kind),
      kept,
    );
  }),

  law('a key released and asked for in one call changes hands', async ({ key, open }) => {
    const asking = open();
    const [first, second] = [somebody(key), somebody(key)];
    const before = await asking.take(first);
    const { acquire } = await asking.backend.exchange(
      { acquire: [acquisition(second)], release: [first] },
      LIMIT_MS,
    );
    const answer = known(acquire[0]);
    assert(answer.kind === 'granted' && answer.fencingToken > before);
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
