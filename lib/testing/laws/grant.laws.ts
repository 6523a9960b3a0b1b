import assert from 'node:assert/strict';
import { type Law, LEASE_MS, LONG_LEASE_MS, createClaim, law, nth } from './law.js';

/** Which requests are granted a key. */
export const grantLaws: readonly Law[] = [
  law('a free key is granted, a taken key is not', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    await ours.expectGranted(createClaim(key));
    const remainingMs = await theirs.expectTaken(createClaim(key));
    assert(
      remainingMs > 0 && remainingMs <= LONG_LEASE_MS,
      `expected the rest of the lease, got ${remainingMs} ms`,
    );
  }),

  law('of many acquisitions at once, one is granted', async ({ key, open }) => {
    const backends = [open(), open(), open()];
    for (let round = 0; round < 10; round += 1) {
      const claims = Array.from({ length: 12 }, () => createClaim(key));
      const results = await Promise.all(claims.map((claim, index) => nth(backends, index).acquire(claim)));
      const granted = claims.filter((_, index) => results[index]?.kind === 'granted');
      assert.equal(granted.length, 1, `expected one grant among 12 acquisitions, got ${granted.length}`);
      assert.equal(await nth(backends, 0).release(nth(granted, 0)), 'released');
    }
  }),

  law('work that is not atomic loses no update under the lock', async ({ key, open }) => {
    let steps = 0;
    const worker = async () => {
      const client = open();
      for (let turn = 0; turn < 8; turn += 1) {
        const claim = createClaim(key);
        await client.acquireOnceFree(claim);
        const before = steps;
        await new Promise(setImmediate);
        steps = before + 1;
        await client.release(claim);
      }
    };
    await Promise.all([worker(), worker(), worker()]);
    assert.equal(steps, 24);
  }),

  law('a repeated acquisition is the same grant with a fresh lease', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const claim = createClaim(key);
    const fencingToken = await ours.expectGranted(claim, { leaseMs: LONG_LEASE_MS });
    assert.equal(await ours.expectGranted(claim, { leaseMs: 2 * LONG_LEASE_MS }), fencingToken);
    assert((await theirs.expectTaken(createClaim(key))) > LONG_LEASE_MS, 'expected the lease to begin anew');
  }),

  law('a repeated acquisition never shortens the lease', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const claim = createClaim(key);
    await ours.expectGranted(claim, { leaseMs: LONG_LEASE_MS });
    assert.equal(await ours.renew(claim, 2 * LONG_LEASE_MS), 'renewed');
    await ours.expectGranted(claim, { leaseMs: LEASE_MS });
    assert(
      (await theirs.expectTaken(createClaim(key))) > LONG_LEASE_MS,
      'expected the longer lease to stand',
    );
  }),

  law('a released key is free at once', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const claim = createClaim(key);
    await ours.expectGranted(claim);
    assert.equal(await ours.release(claim), 'released');
    await theirs.expectGranted(createClaim(key));
  }),

  law('a release by a holder without the lock changes nothing', async ({ key, open }) => {
    const client = open();
    const claim = createClaim(key);
    assert.equal(await client.release(createClaim(key)), 'gone');
    await client.expectGranted(claim);
    assert.equal(await client.release(createClaim(key)), 'gone');
    await client.expectTaken(createClaim(key));
    assert.equal(await client.release(claim), 'released');
    assert.equal(await client.release(claim), 'gone');
  }),

  law('keys are compared byte for byte', async ({ key, open }) => {
    const client = open();
    const endings = [
      'a',
      'A',
      'a ',
      ' a',
      'á',
      'a\u0301',
      'ａ',
      '%',
      '_',
      '*',
      "'",
      '"',
      '`',
      '\\',
      '{a}',
      '}',
      '\n',
      '😀',
      '',
    ];
    const longest = 'k'.repeat(512 - key.length);
    for (const ending of [...endings, longest, `${longest.slice(1)}K`])
      await client.expectGranted(createClaim(key + ending));
  }),
];
