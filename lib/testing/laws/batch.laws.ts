import assert from 'node:assert/strict';
import type { AcquisitionId, BatchResult, RequestBatch } from '../../core/backend.js';
import {
  type Law,
  LONG_LEASE_MS,
  TIMEOUT_MS,
  createAcquireRequest,
  createAcquisitionId,
  law,
  nth,
  requireKnown,
} from './law.js';

/** Several requests in one call of `execute`. */
export const batchLaws: readonly Law[] = [
  law('results have the order of their requests', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const acquisitions = Array.from({ length: 20 }, (_, index) => createAcquisitionId(`${key}:${index}`));
    for (const [index, acquisition] of acquisitions.entries()) {
      if (index % 3 === 0) await theirs.expectGranted(createAcquisitionId(acquisition.key));
    }
    const { acquire } = await ours.backend.execute(
      { acquire: acquisitions.map((acquisition) => createAcquireRequest(acquisition)) },
      TIMEOUT_MS,
    );
    const expected = acquisitions.map((_, index) => (index % 3 === 0 ? 'taken' : 'granted'));
    assert.deepEqual(
      acquire.map((result) => result.kind),
      expected,
    );
    const [released, held] = [nth(acquisitions, 1), acquisitions.slice(2)];
    const { renew, release } = await ours.backend.execute(
      {
        renew: held.map((acquisition) => ({ ...acquisition, leaseMs: LONG_LEASE_MS })),
        release: [createAcquisitionId(key), released],
      },
      TIMEOUT_MS,
    );
    assert.deepEqual(
      release.map((result) => result.kind),
      ['gone', 'released'],
    );
    assert.deepEqual(
      renew.map((result) => result.kind),
      held.map((_, index) => ((index + 2) % 3 === 0 ? 'lost' : 'renewed')),
    );
  }),

  law('a thousand locks are acquired, renewed and released in one batch', async ({ key, open }) => {
    const client = open();
    const acquisitions = Array.from({ length: 1_000 }, (_, index) => createAcquisitionId(`${key}:${index}`));
    // The first of them must last until the last one is granted, and all until they are renewed.
    const terms = { leaseMs: 2 * LONG_LEASE_MS };
    const { acquire } = await client.backend.execute(
      { acquire: acquisitions.map((acquisition) => createAcquireRequest(acquisition, terms)) },
      TIMEOUT_MS,
    );
    assert(acquire.every((result) => requireKnown(result).kind === 'granted'));
    const renewals = acquisitions.map((acquisition) => ({ ...acquisition, leaseMs: LONG_LEASE_MS }));
    const { renew } = await client.backend.execute({ renew: renewals }, TIMEOUT_MS);
    assert(renew.every((result) => requireKnown(result).kind === 'renewed'));
    const { release } = await client.backend.execute({ release: acquisitions }, TIMEOUT_MS);
    assert(release.every((result) => requireKnown(result).kind === 'released'));
  }),

  law('results that come early are those of the whole batch', async ({ key, open }) => {
    const { backend } = open();
    const early: [keyof BatchResult, number, unknown][] = [];
    const execute = async (requests: RequestBatch) => {
      early.length = 0;
      const results = await backend.execute(requests, TIMEOUT_MS, (kind, index, result) =>
        early.push([kind, index, result]),
      );
      for (const [kind, index, result] of early) assert.deepEqual(results[kind][index], result);
      assert.equal(new Set(early.map(([kind, index]) => `${kind} ${index}`)).size, early.length);
    };
    const [one, two, three] = ['one', 'two', 'three'].map((name) =>
      createAcquisitionId(`${key}:${name}`),
    ) as [AcquisitionId, AcquisitionId, AcquisitionId];
    await execute({ acquire: [one, two].map((acquisition) => createAcquireRequest(acquisition)) });
    await execute({
      release: [one, createAcquisitionId(key)],
      renew: [{ ...two, leaseMs: LONG_LEASE_MS }],
      acquire: [createAcquireRequest(three)],
    });
  }),

  law('a closed backend opens again at the next request', async ({ key, open }) => {
    const client = open();
    const acquisition = createAcquisitionId(key);
    await client.expectGranted(acquisition);
    await client.backend.close();
    await client.backend.close();
    assert.equal(await client.release(acquisition), 'released');
  }),
];
