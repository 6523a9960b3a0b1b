import assert from 'node:assert/strict';
import type { TickClaim } from '../../core/backend.js';
import { type Asking, type Law, LONG_LEASE_MS, law, somebody, nth } from './law.js';

const HOUR_MS = 60 * 60 * 1_000;

const at = (tickMs: number, limits: Partial<TickClaim> = {}): TickClaim => ({
  tickMs,
  maxEarlyMs: HOUR_MS,
  staleAfterMs: HOUR_MS,
  ...limits,
});

/** Claims the tick with no lock left behind; answers `granted` or the reason against it. */
async function claim(asking: Asking, key: string, tick: TickClaim): Promise<string> {
  const run = somebody(key);
  const answer = await asking.acquire(run, { tick });
  if (answer.kind === 'granted') await asking.release(run);
  return answer.kind === 'refused' ? answer.reason : answer.kind;
}

/** A planned instant of a job is given out once, however clocks differ and however short the run. */
export const tickLaws: readonly Law[] = [
  law('a tick that is refused as early is so by more than nothing', async ({ key, open }) => {
    const asking = open();
    // By how many fractions of a ms the others are, only chance decides.
    for (let tries = 0; tries < 60; tries += 1) {
      const tick = at(Date.now() + (tries === 0 ? HOUR_MS : tries % 4), { maxEarlyMs: 0 });
      const answer = await asking.acquire(somebody(`${key}:${tries}`), { tick });
      const isEarly = answer.kind === 'refused' && answer.reason === 'early';
      assert(isEarly || tries > 0, `expected a tick in an hour to be early, got '${answer.kind}'`);
      if (isEarly) assert(answer.aheadMs > 0, `expected a time to wait, got ${answer.aheadMs} ms`);
    }
  }),

  law('of many who claim a tick at once, one is granted', async ({ key, open }) => {
    const backends = [open(), open(), open()];
    const now = Date.now();
    for (let round = 0; round < 10; round += 1) {
      const tick = at(now + round);
      const answers = await Promise.all(
        Array.from({ length: 9 }, (_, index) => claim(nth(backends, index), key, tick)),
      );
      const granted = answers.filter((answer) => answer === 'granted');
      assert.equal(granted.length, 1, `expected one claim among 9, got ${granted.length}`);
    }
  }),

  law('a tick stays claimed after its run has ended', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const now = Date.now();
    assert.equal(await claim(ours, key, at(now)), 'granted');
    assert.equal(await claim(theirs, key, at(now)), 'claimed');
    assert.equal(await claim(theirs, key, at(now - 1)), 'claimed');
    assert.equal(await claim(theirs, key, at(now + 1)), 'granted');
  }),

  law('a claim sent again by the same run is the same grant', async ({ key, open }) => {
    const asking = open();
    const run = somebody(key);
    const tick = at(Date.now());
    const fencingToken = await asking.take(run, { tick });
    assert.equal(await asking.take(run, { tick }), fencingToken);
  }),

  law(
    'a tick is not given out while an earlier run is on, and not used up by that',
    async ({ key, open }) => {
      const asking = open();
      const run = somebody(key);
      const now = Date.now();
      await asking.take(run, { tick: at(now) });
      assert.equal(await claim(asking, key, at(now + 1)), 'taken');
      await asking.release(run);
      assert.equal(await claim(asking, key, at(now + 1)), 'granted');
    },
  ),

  law(
    'a tick too far ahead of the clock of the store is refused, with the distance',
    async ({ key, open }) => {
      const asking = open();
      const tick = at(Date.now() + 2 * HOUR_MS, { maxEarlyMs: HOUR_MS });
      const answer = await asking.acquire(somebody(key), { tick });
      assert(
        answer.kind === 'refused' && answer.reason === 'early',
        `expected 'early', got '${answer.kind}'`,
      );
      assert(
        answer.aheadMs > HOUR_MS && answer.aheadMs < 3 * HOUR_MS,
        `expected two hours, got ${answer.aheadMs} ms`,
      );
      assert.equal(await claim(asking, key, at(Date.now())), 'granted');
    },
  ),

  law(
    'a tick ahead of the clock of the store is refused as claimed up to the newest claimed one, and later as early',
    async ({ key, open }) => {
      const asking = open();
      const now = Date.now();
      assert.equal(await claim(asking, key, at(now + HOUR_MS / 2)), 'granted');
      const limits = { maxEarlyMs: 0, staleAfterMs: -1 };
      assert.equal(await claim(asking, key, at(now + HOUR_MS / 2, limits)), 'claimed');
      const older = await asking.acquire(somebody(key), { tick: at(now + HOUR_MS / 4, limits) });
      assert(
        older.kind === 'refused' && older.reason === 'claimed',
        `expected 'claimed', got '${older.kind}'`,
      );
      assert(older.aheadMs > HOUR_MS / 8, `expected a quarter of an hour, got ${older.aheadMs} ms`);
      assert.equal(await claim(asking, key, at(now + HOUR_MS, limits)), 'early');
    },
  ),

  law('a tick too long ago by the clock of the store is refused', async ({ key, open }) => {
    const asking = open();
    assert.equal(await claim(asking, key, at(Date.now() - 2 * HOUR_MS)), 'stale');
    assert.equal(await claim(asking, key, at(Date.now())), 'granted');
  }),

  law('the fencing tokens of runs grow', async ({ key, open }) => {
    const asking = open();
    let newest = 0n;
    for (let tick = Date.now(), last = tick + 10; tick < last; tick += 1) {
      const run = somebody(key);
      const fencingToken = await asking.take(run, { tick: at(tick), leaseMs: LONG_LEASE_MS });
      assert(fencingToken > newest, `expected more than ${newest}, got ${fencingToken}`);
      newest = fencingToken;
      await asking.release(run);
    }
  }),
];
