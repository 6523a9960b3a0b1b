import assert from 'node:assert/strict';
import {
  type Law,
  LEASE_MS,
  LIMIT_MS,
  LONG_LEASE_MS,
  acquisition,
  known,
  law,
  nth,
  somebody,
} from './law.js';

/** The fencing token grows, whatever happens to the grants and to the store's memory. */
export const tokenLaws: readonly Law[] = [
  law('fencing tokens grow from grant to grant', async ({ key, open }) => {
    const backends = [open(), open()];
    let newest = 0n;
    for (let grant = 0; grant < 20; grant += 1) {
      const asking = nth(backends, grant);
      const claim = somebody(key);
      const fencingToken = await asking.take(claim);
      assert(fencingToken > newest, `expected more than ${newest}, got ${fencingToken}`);
      newest = fencingToken;
      await asking.release(claim);
    }
  }),

  law('fencing tokens grow also where several keys are granted together', async ({ key, open }) => {
    const asking = open();
    const tokens = async () => {
      const claims = ['one', 'other'].map((part) => somebody(`${key}:${part}`));
      const acquire = claims.map((claim) => acquisition(claim));
      const answers = (await asking.backend.exchange({ acquire }, LIMIT_MS)).acquire.map(known);
      await asking.backend.exchange({ release: claims }, LIMIT_MS);
      return answers.map((answer) => (answer.kind === 'granted' ? answer.fencingToken : 0n));
    };
    const [before, after] = [await tokens(), await tokens()];
    for (const [index, token] of after.entries()) {
      assert(token > nth(before, index), `expected more than ${nth(before, index)}, got ${token}`);
    }
  }),

  law('the fencing token grows when a lease ran out', async ({ key, open }) => {
    const asking = open();
    const first = await asking.take(somebody(key), { leaseMs: LEASE_MS });
    const second = await asking.takeWhenOver(somebody(key));
    assert(second > first, `expected more than ${first}, got ${second}`);
  }),

  law('the same holder gets a larger fencing token once its lease ran out', async ({ key, open }) => {
    const asking = open();
    const claim = somebody(key);
    const first = await asking.take(claim, { leaseMs: LEASE_MS });
    const other = somebody(key);
    await asking.takeWhenOver(other);
    await asking.release(other);
    const second = await asking.take(claim);
    assert(second > first, `expected more than ${first}, got ${second}`);
  }),

  law('fencing tokens keep growing when the store has forgotten the key', async ({ key, open, forget }) => {
    const asking = open();
    const first = await asking.take(somebody(key));
    await forget(key);
    const second = await asking.take(somebody(key));
    assert(second > first, `expected more than ${first}, got ${second}`);
  }),

  law('a grant takes up as many fencing tokens as it asks for', async ({ key, open }) => {
    const asking = open();
    const claim = somebody(key);
    const first = await asking.take(claim, { tokenCount: 1_000_000 });
    assert.equal(await asking.take(claim, { tokenCount: 1_000_000 }), first);
    assert.equal((await asking.inspect(key))?.fencingToken, first);
    await asking.release(claim);
    const second = await asking.take(somebody(key));
    assert(second >= first + 1_000_000n, `expected a million more than ${first}, got ${second}`);
  }),

  law('more fencing tokens for a grant are larger than those it had', async ({ key, open }) => {
    const asking = open();
    const claim = somebody(key);
    const first = await asking.take(claim, { tokenCount: 10 });
    const request = { ...claim, leaseMs: LEASE_MS, moreTokens: 1_000_000 };
    const { renew } = await asking.backend.exchange({ renew: [request] }, LIMIT_MS);
    const answer = known(renew[0]);
    assert(answer.kind === 'renewed', `expected a renewal, got '${answer.kind}'`);
    // A store may always leave it be.
    const more = answer.fencingToken;
    const last = more ? more + 999_999n : first + 9n;
    assert(!more || more > first + 9n, `expected more than ${first + 9n}, got ${more}`);
    const lease = await asking.inspect(key);
    assert(lease && lease.remainingMs > LEASE_MS, 'expected the longer lease to stay');
    await asking.release(claim);
    const second = await asking.take(somebody(key));
    assert(second > last, `expected more than ${last}, got ${second}`);
  }),

  law('a grant gets no more fencing tokens while somebody else waits', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const claim = somebody(key);
    await ours.take(claim, { tokenCount: 10 });
    await theirs.findTaken(somebody(key), { againWithinMs: LONG_LEASE_MS });
    const request = { ...claim, leaseMs: LEASE_MS, moreTokens: 10 };
    const { renew } = await ours.backend.exchange({ renew: [request] }, LIMIT_MS);
    assert.deepEqual(known(renew[0]), { kind: 'renewed' });
  }),

  law('a forced release takes any of the fencing tokens of a grant for its name', async ({ key, open }) => {
    const asking = open();
    const first = await asking.take(somebody(key), { tokenCount: 10 });
    assert.equal(await asking.forceRelease(key, first + 10n), false);
    assert.equal(await asking.forceRelease(key, first + 9n), true);
    assert.equal(await asking.inspect(key), null);
  }),

  law('inspect tells who holds the key', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    assert.equal(await theirs.inspect(key), null);
    const claim = somebody(key);
    const fencingToken = await ours.take(claim, { leaseMs: 20_000, instance: 'node-1:42' });
    const record = await theirs.inspect(key);
    assert(record);
    assert.equal(record.holder, claim.holder);
    assert.equal(record.instance, 'node-1:42');
    assert.equal(record.fencingToken, fencingToken);
    assert(record.remainingMs > 0 && record.remainingMs <= 20_000);
    assert(Number.isInteger(record.sinceMs) && record.sinceMs > 0);
    await ours.release(claim);
    assert.equal(await theirs.inspect(key), null);
  }),

  law('a forced release frees only the grant it names', async ({ key, open }) => {
    const asking = open();
    const claim = somebody(key);
    const fencingToken = await asking.take(claim);
    assert.equal(await asking.forceRelease(key, fencingToken - 1n), false);
    await asking.findTaken(somebody(key));
    assert.equal(await asking.forceRelease(key, fencingToken), true);
    assert.equal(await asking.forceRelease(key, fencingToken), false);
    assert.equal(await asking.renew(claim), 'lost');
    assert((await asking.take(somebody(key))) > fencingToken);
  }),
];
