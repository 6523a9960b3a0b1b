import assert from 'node:assert/strict';
import { type Law, LONG_LEASE_MS, createAcquisitionId, law, nth } from './law.js';

/** Which requests are granted a key. */
export const grantLaws: readonly Law[] = [
  law('a free key is granted, a taken key is not', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    await ours.expectGranted(createAcquisitionId(key));
    const remainingMs = await theirs.expectTaken(createAcquisitionId(key));
    assert(
      remainingMs > 0 && remainingMs <= LONG_LEASE_MS,
      `expected the rest of the lease, got ${remainingMs} ms`,
    );
  }),

  law('of many acquisitions at once, one is granted', async ({ key, open }) => {
    const backends = [open(), open(), open()];
    for (let grants = 0; grants < 10;) {
      const acquisitions = Array.from({ length: 12 }, () => createAcquisitionId(key));
      const results = await Promise.all(
        acquisitions.map((acquisition, index) => nth(backends, index).acquire(acquisition)),
      );
      const granted = acquisitions.filter((_, index) => results[index]?.kind === 'granted');
      assert(granted.length <= 1, `expected one grant among 12 acquisitions, got ${granted.length}`);
      // On a slow quorum, the acquisitions may split the votes until their time is over.
      for (const acquisition of granted)
        assert.equal(await nth(backends, 0).release(acquisition), 'released');
      grants += granted.length;
    }
  }),

  law('work that is not atomic loses no update under the lock', async ({ key, open }) => {
    let steps = 0;
    const worker = async () => {
      const client = open();
      for (let turn = 0; turn < 8; turn += 1) {
        const acquisition = createAcquisitionId(key);
        await client.acquireOnceFree(acquisition);
        const before = steps;
        await new Promise(setImmediate);
        steps = before + 1;
        await client.release(acquisition);
      }
    };
    await Promise.all([worker(), worker(), worker()]);
    assert.equal(steps, 24);
  }),

  law('a repeated acquisition is the same grant with a fresh lease', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const acquisition = createAcquisitionId(key);
    const fencingToken = await ours.expectGranted(acquisition, { leaseMs: LONG_LEASE_MS });
    assert.equal(await ours.expectGranted(acquisition, { leaseMs: 2 * LONG_LEASE_MS }), fencingToken);
    await theirs.expectTakenForOver(key, LONG_LEASE_MS);
  }),

  law('a repeated acquisition never shortens the lease', async ({ key, leaseMs, open }) => {
    const [ours, theirs] = [open(), open()];
    const acquisition = createAcquisitionId(key);
    await ours.expectGranted(acquisition, { leaseMs: LONG_LEASE_MS });
    assert.equal(await ours.renew(acquisition, 2 * LONG_LEASE_MS), 'renewed');
    await ours.expectGranted(acquisition, { leaseMs });
    await theirs.expectTakenForOver(key, LONG_LEASE_MS);
  }),

  law('a released key is free at once', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const acquisition = createAcquisitionId(key);
    await ours.expectGranted(acquisition);
    assert.equal(await ours.release(acquisition), 'released');
    await theirs.expectGranted(createAcquisitionId(key));
  }),

  law('a release by a holder without the lock changes nothing', async ({ key, open }) => {
    const client = open();
    const acquisition = createAcquisitionId(key);
    assert.equal(await client.release(createAcquisitionId(key)), 'gone');
    await client.expectGranted(acquisition);
    assert.equal(await client.release(createAcquisitionId(key)), 'gone');
    await client.expectTaken(createAcquisitionId(key));
    assert.equal(await client.release(acquisition), 'released');
    assert.equal(await client.release(acquisition), 'gone');
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
      await client.expectGranted(createAcquisitionId(key + ending));
  }),
];
