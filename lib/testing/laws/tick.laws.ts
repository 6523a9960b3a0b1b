import assert from 'node:assert/strict';
import type { TickClaim } from '../../core/backend.js';
import { type BackendClient, type Law, LONG_LEASE_MS, TIMEOUT_MS, createClaim, law, nth } from './law.js';

const HOUR_MS = 60 * 60 * 1_000;

const createTickClaim = (tickMs: number, limits: Partial<TickClaim> = {}): TickClaim => ({
  tickMs,
  maxEarlyMs: HOUR_MS,
  staleAfterMs: HOUR_MS,
  ...limits,
});

/** Claims the tick and releases the lock. Returns `granted` or the reason of the refusal. */
async function claimTick(client: BackendClient, key: string, tick: TickClaim): Promise<string> {
  const run = createClaim(key);
  const result = await client.acquire(run, { tick });
  if (result.kind === 'granted') await client.release(run);
  return result.kind === 'refused' ? result.reason : result.kind;
}

/** A tick of a job is granted once, however much clocks differ and however short its run is. */
export const tickLaws: readonly Law[] = [
  law('a tick that is refused as early has a positive distance', async ({ key, open }) => {
    const client = open();
    // The first try is early for certain. The others are early by fractions of a ms, or not, at random.
    for (let tries = 0; tries < 60; tries += 1) {
      const tick = createTickClaim(Date.now() + (tries === 0 ? HOUR_MS : tries % 4), { maxEarlyMs: 0 });
      const result = await client.acquire(createClaim(`${key}:${tries}`), { tick });
      const isEarly = result.kind === 'refused' && result.reason === 'early';
      assert(isEarly || tries > 0, `expected a tick in an hour to be early, got '${result.kind}'`);
      if (isEarly) assert(result.aheadMs > 0, `expected a time to wait, got ${result.aheadMs} ms`);
    }
  }),

  law('of many claims of a tick at once, one is granted', async ({ key, open }) => {
    const backends = [open(), open(), open()];
    const now = Date.now();
    for (let round = 0; round < 10; round += 1) {
      const tick = createTickClaim(now + round);
      const results = await Promise.all(
        Array.from({ length: 9 }, (_, index) => claimTick(nth(backends, index), key, tick)),
      );
      const granted = results.filter((result) => result === 'granted');
      assert.equal(granted.length, 1, `expected one claim among 9, got ${granted.length}`);
    }
  }),

  law('a tick stays claimed after its run has ended', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const now = Date.now();
    assert.equal(await claimTick(ours, key, createTickClaim(now)), 'granted');
    assert.equal(await claimTick(theirs, key, createTickClaim(now)), 'claimed');
    assert.equal(await claimTick(theirs, key, createTickClaim(now - 1)), 'claimed');
    assert.equal(await claimTick(theirs, key, createTickClaim(now + 1)), 'granted');
  }),

  law('a repeated claim of the same run is the same grant', async ({ key, open }) => {
    const client = open();
    const run = createClaim(key);
    const tick = createTickClaim(Date.now());
    const fencingToken = await client.expectGranted(run, { tick });
    assert.equal(await client.expectGranted(run, { tick }), fencingToken);
  }),

  law('a tick is refused while an earlier run lasts, and can be claimed after it', async ({ key, open }) => {
    const client = open();
    const run = createClaim(key);
    const now = Date.now();
    await client.expectGranted(run, { tick: createTickClaim(now) });
    assert.equal(await claimTick(client, key, createTickClaim(now + 1)), 'taken');
    await client.release(run);
    assert.equal(await claimTick(client, key, createTickClaim(now + 1)), 'granted');
  }),

  law("a tick too far ahead of the store's clock is refused, with the distance", async ({ key, open }) => {
    const client = open();
    const tick = createTickClaim(Date.now() + 2 * HOUR_MS, { maxEarlyMs: HOUR_MS });
    const result = await client.acquire(createClaim(key), { tick });
    assert(result.kind === 'refused' && result.reason === 'early', `expected 'early', got '${result.kind}'`);
    assert(
      result.aheadMs > HOUR_MS && result.aheadMs < 3 * HOUR_MS,
      `expected two hours, got ${result.aheadMs} ms`,
    );
    assert.equal(await claimTick(client, key, createTickClaim(Date.now())), 'granted');
  }),

  law(
    "a tick ahead of the store's clock is refused as claimed up to the newest claimed one, and later as early",
    async ({ key, open }) => {
      const client = open();
      const now = Date.now();
      assert.equal(await claimTick(client, key, createTickClaim(now + HOUR_MS / 2)), 'granted');
      const limits = { maxEarlyMs: 0, staleAfterMs: -1 };
      assert.equal(await claimTick(client, key, createTickClaim(now + HOUR_MS / 2, limits)), 'claimed');
      const older = await client.acquire(createClaim(key), {
        tick: createTickClaim(now + HOUR_MS / 4, limits),
      });
      assert(
        older.kind === 'refused' && older.reason === 'claimed',
        `expected 'claimed', got '${older.kind}'`,
      );
      assert(older.aheadMs > HOUR_MS / 8, `expected a quarter of an hour, got ${older.aheadMs} ms`);
      assert.equal(await claimTick(client, key, createTickClaim(now + HOUR_MS, limits)), 'early');
    },
  ),

  law("a tick too long ago by the store's clock is refused", async ({ key, open }) => {
    const client = open();
    assert.equal(await claimTick(client, key, createTickClaim(Date.now() - 2 * HOUR_MS)), 'stale');
    assert.equal(await claimTick(client, key, createTickClaim(Date.now())), 'granted');
  }),

  law('the fencing tokens of runs grow', async ({ key, open }) => {
    const client = open();
    let newest = 0n;
    for (let tick = Date.now(), last = tick + 10; tick < last; tick += 1) {
      const run = createClaim(key);
      const fencingToken = await client.expectGranted(run, {
        tick: createTickClaim(tick),
        leaseMs: LONG_LEASE_MS,
      });
      assert(fencingToken > newest, `expected more than ${newest}, got ${fencingToken}`);
      newest = fencingToken;
      await client.release(run);
    }
  }),

  law('the ticks of a key are read with the time of the store', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const unclaimed = await ours.readTicks(key);
    assert.equal(unclaimed.claimed, undefined);
    assert(unclaimed.heldForMs <= 0, `expected a free key, got ${unclaimed.heldForMs} ms`);
    assert(Math.abs(unclaimed.nowMs - Date.now()) < HOUR_MS, `expected a time, got ${unclaimed.nowMs}`);
    const run = createClaim(key);
    const tick = createTickClaim(Date.now());
    await ours.expectGranted(run, { tick, leaseMs: 20_000 });
    const { heldForMs, claimed, ...held } = await theirs.readTicks(key);
    assert.deepEqual(claimed, { tickMs: tick.tickMs, attempt: 1 });
    assert(heldForMs > 0 && heldForMs <= 20_000, `expected the rest of the lease, got ${heldForMs} ms`);
    assert(held.nowMs >= unclaimed.nowMs, 'expected time to pass');
    assert(held.aliveUntilMs >= held.nowMs, 'expected a run in progress to be alive until its lease ends');
    await ours.backend.execute({ release: [{ ...run, hasEnded: true }] }, TIMEOUT_MS);
    const ended = await theirs.readTicks(key);
    assert.deepEqual(ended.claimed, { tickMs: tick.tickMs, attempt: 0 });
    assert(ended.heldForMs <= 0, `expected a free key, got ${ended.heldForMs} ms`);
  }),
];
