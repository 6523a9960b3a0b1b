import assert from 'node:assert/strict';
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

/** Fencing tokens grow, whatever happens to the grants and to the memory of the store. */
export const tokenLaws: readonly Law[] = [
  law('fencing tokens grow from grant to grant', async ({ key, open }) => {
    const backends = [open(), open()];
    let newest = 0n;
    for (let grant = 0; grant < 20; grant += 1) {
      const client = nth(backends, grant);
      const acquisition = createAcquisitionId(key);
      const fencingToken = await client.expectGranted(acquisition);
      assert(fencingToken > newest, `expected more than ${newest}, got ${fencingToken}`);
      newest = fencingToken;
      await client.release(acquisition);
    }
  }),

  law('fencing tokens also grow when several keys are granted together', async ({ key, open }) => {
    const client = open();
    const tokens = async () => {
      const acquisitions = ['one', 'other'].map((part) => createAcquisitionId(`${key}:${part}`));
      const acquire = acquisitions.map((acquisition) => createAcquireRequest(acquisition));
      const results = (await client.backend.execute({ acquire }, TIMEOUT_MS)).acquire.map(requireKnown);
      await client.backend.execute({ release: acquisitions }, TIMEOUT_MS);
      return results.map((result) => (result.kind === 'granted' ? result.fencingToken : 0n));
    };
    const [before, after] = [await tokens(), await tokens()];
    for (const [index, token] of after.entries()) {
      assert(token > nth(before, index), `expected more than ${nth(before, index)}, got ${token}`);
    }
  }),

  law('the fencing token grows when a lease has expired', async ({ key, leaseMs, open }) => {
    const client = open();
    const first = await client.expectGranted(createAcquisitionId(key), { leaseMs });
    const second = await client.acquireOnceFree(createAcquisitionId(key));
    assert(second > first, `expected more than ${first}, got ${second}`);
  }),

  law(
    'the same holder gets a larger fencing token once its lease has expired',
    async ({ key, leaseMs, open }) => {
      const client = open();
      const acquisition = createAcquisitionId(key);
      const first = await client.expectGranted(acquisition, { leaseMs });
      const other = createAcquisitionId(key);
      await client.acquireOnceFree(other);
      await client.release(other);
      const second = await client.expectGranted(acquisition);
      assert(second > first, `expected more than ${first}, got ${second}`);
    },
  ),

  law('fencing tokens keep growing when the store has lost the key', async ({ key, open, forget }) => {
    const client = open();
    const first = await client.expectGranted(createAcquisitionId(key));
    await forget(key);
    const second = await client.expectGranted(createAcquisitionId(key));
    assert(second > first, `expected more than ${first}, got ${second}`);
  }),

  law('a grant reserves as many fencing tokens as it requests', async ({ key, tokenCount, open }) => {
    const client = open();
    const acquisition = createAcquisitionId(key);
    const first = await client.expectGranted(acquisition, { tokenCount });
    assert.equal(await client.expectGranted(acquisition, { tokenCount }), first);
    assert.equal((await client.inspect(key))?.fencingToken, first);
    await client.release(acquisition);
    const second = await client.expectGranted(createAcquisitionId(key));
    assert(second >= first + BigInt(tokenCount), `expected ${tokenCount} more than ${first}, got ${second}`);
  }),

  law(
    'added fencing tokens of a grant are larger than its earlier ones',
    async ({ key, leaseMs, tokenCount, open }) => {
      const client = open();
      const acquisition = createAcquisitionId(key);
      const first = await client.expectGranted(acquisition, { tokenCount: 10 });
      const request = { ...acquisition, leaseMs, moreTokens: tokenCount };
      const { renew } = await client.backend.execute({ renew: [request] }, TIMEOUT_MS);
      const result = requireKnown(renew[0]);
      assert(result.kind === 'renewed', `expected a renewal, got '${result.kind}'`);
      // A store may always decline to add tokens.
      const more = result.fencingToken;
      const last = more ? more + BigInt(tokenCount - 1) : first + 9n;
      assert(!more || more > first + 9n, `expected more than ${first + 9n}, got ${more}`);
      const lease = await client.inspect(key);
      assert(lease && lease.remainingMs > leaseMs, 'expected the longer lease to stay');
      await client.release(acquisition);
      const second = await client.expectGranted(createAcquisitionId(key));
      assert(second > last, `expected more than ${last}, got ${second}`);
    },
  ),

  law('a grant gets no more fencing tokens while another process waits', async ({ key, leaseMs, open }) => {
    const [ours, theirs] = [open(), open()];
    const acquisition = createAcquisitionId(key);
    await ours.expectGranted(acquisition, { tokenCount: 10 });
    await theirs.expectTaken(createAcquisitionId(key), { retryWithinMs: LONG_LEASE_MS });
    const request = { ...acquisition, leaseMs, moreTokens: 10 };
    const { renew } = await ours.backend.execute({ renew: [request] }, TIMEOUT_MS);
    assert.deepEqual(requireKnown(renew[0]), { kind: 'renewed' });
  }),

  law('a forced release accepts any fencing token of the grant', async ({ key, open }) => {
    const client = open();
    const first = await client.expectGranted(createAcquisitionId(key), { tokenCount: 10 });
    assert.equal(await client.forceRelease(key, first + 10n), false);
    assert.equal(await client.forceRelease(key, first + 9n), true);
    assert.equal(await client.inspect(key), null);
  }),

  law('inspect returns the holder of the key', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    assert.equal(await theirs.inspect(key), null);
    const acquisition = createAcquisitionId(key);
    const fencingToken = await ours.expectGranted(acquisition, { leaseMs: 20_000, instance: 'node-1:42' });
    const record = await theirs.inspect(key);
    assert(record);
    assert.equal(record.holder, acquisition.holder);
    assert.equal(record.instance, 'node-1:42');
    assert.equal(record.fencingToken, fencingToken);
    assert(record.remainingMs > 0 && record.remainingMs <= 20_000);
    assert(Number.isInteger(record.sinceMs) && record.sinceMs > 0);
    await ours.release(acquisition);
    assert.equal(await theirs.inspect(key), null);
  }),

  law('a forced release only releases the grant of its fencing token', async ({ key, open }) => {
    const client = open();
    const acquisition = createAcquisitionId(key);
    const fencingToken = await client.expectGranted(acquisition);
    assert.equal(await client.forceRelease(key, fencingToken - 1n), false);
    await client.expectTaken(createAcquisitionId(key));
    assert.equal(await client.forceRelease(key, fencingToken), true);
    assert.equal(await client.forceRelease(key, fencingToken), false);
    assert.equal(await client.renew(acquisition), 'lost');
    assert((await client.expectGranted(createAcquisitionId(key))) > fencingToken);
  }),
];
