import assert from 'node:assert/strict';
import type { Claim, Granted, ReleaseAnswer, TickClaim, TickRefused } from '../../core/backend.js';
import { type Asking, LEASE_MS, LIMIT_MS, type Law, LONG_LEASE_MS, known, law, somebody } from './law.js';

const HOUR_MS = 60 * 60 * 1_000;

const at = (tickMs: number, limits: Partial<TickClaim> = {}): TickClaim => ({
  ...{ tickMs, maxEarlyMs: HOUR_MS, staleAfterMs: HOUR_MS, maxAttempts: 3 },
  ...limits,
});

async function refused(asking: Asking, key: string, tick: TickClaim): Promise<TickRefused> {
  const answer = await asking.acquire(somebody(key), { tick });
  assert(answer.kind === 'refused', `expected the tick to be refused, got '${answer.kind}'`);
  return answer;
}

async function granted(
  asking: Asking,
  run: Claim,
  tick: TickClaim,
  leaseMs = LONG_LEASE_MS,
): Promise<Granted> {
  const answer = await asking.acquire(run, { tick, leaseMs });
  assert(answer.kind === 'granted', `expected the tick to be granted, got '${answer.kind}'`);
  return answer;
}

async function finish(asking: Asking, run: Claim): Promise<ReleaseAnswer['kind']> {
  const { release } = await asking.backend.exchange({ release: [{ ...run, hasEnded: true }] }, LIMIT_MS);
  return known(release[0]).kind;
}

/** A run that dies: its lease is over when this settles. */
async function die(asking: Asking, key: string, tick: TickClaim): Promise<Granted> {
  const dead = await granted(asking, somebody(key), tick, LEASE_MS);
  // The only way to see a lease end by the store's clock is to let that time pass.
  while (await asking.inspect(key)) await new Promise((resolve) => setTimeout(resolve, 10));
  return dead;
}

/** A tick whose run died is given out again where that is wanted, and no other one is. */
export const retryLaws: readonly Law[] = [
  law('a tick whose run died is given out again, with a larger fencing token', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const tick = at(Date.now());
    const first = await die(ours, key, tick);
    assert.equal(first.attempt, 1);
    const second = await granted(theirs, somebody(key), tick);
    assert.equal(second.attempt, 2);
    assert(second.fencingToken > first.fencingToken);
  }),

  law('of many who take over a dead run, one is granted', async ({ key, open }) => {
    const backends = [open(), open(), open()];
    const tick = at(Date.now());
    await die(open(), key, tick);
    const answers = await Promise.all(
      [...backends, ...backends, ...backends].map((asking) => asking.acquire(somebody(key), { tick })),
    );
    assert.equal(answers.filter(({ kind }) => kind === 'granted').length, 1);
  }),

  law('a tick is given out as often as it may be, and not once more', async ({ key, open }) => {
    const asking = open();
    const tick = at(Date.now(), { maxAttempts: 2 });
    await die(asking, key, tick);
    assert.equal((await die(asking, key, tick)).attempt, 2);
    assert.equal((await refused(asking, key, tick)).reason, 'claimed');
    const next = { ...tick, tickMs: tick.tickMs + 1 };
    assert.equal((await granted(asking, somebody(key), next)).attempt, 1);
  }),

  law('a dead run is not taken over by who wants one attempt', async ({ key, open }) => {
    const asking = open();
    const tick = at(Date.now(), { maxAttempts: 1 });
    await die(asking, key, tick);
    assert.equal((await refused(asking, key, tick)).reason, 'claimed');
    await granted(asking, somebody(key), { ...tick, tickMs: tick.tickMs + 1 });
  }),

  law('while a run is on, those who may take it over learn when its lease ends', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const tick = at(Date.now());
    await granted(ours, somebody(key), tick, 20_000);
    const { reason, retryInMs = 0 } = await refused(theirs, key, tick);
    assert.equal(reason, 'claimed');
    assert(retryInMs > 0 && retryInMs <= 20_000, `expected the rest of the lease, got ${retryInMs} ms`);
    assert.equal((await refused(theirs, key, at(tick.tickMs - 1))).retryInMs, undefined);
    assert.equal((await refused(theirs, key, { ...tick, maxAttempts: 1 })).retryInMs, undefined);
  }),

  law('a run that has ended is not taken over', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const run = somebody(key);
    const tick = at(Date.now());
    await granted(ours, run, tick);
    assert.equal(await finish(ours, run), 'released');
    assert.equal(await finish(ours, run), 'gone');
    assert.equal((await refused(theirs, key, tick)).reason, 'claimed');
    await granted(theirs, somebody(key), at(tick.tickMs + 1));
  }),

  law('a run that took over and has ended is not taken over', async ({ key, open }) => {
    const asking = open();
    const tick = at(Date.now());
    await die(asking, key, tick);
    const run = somebody(key);
    await granted(asking, run, tick);
    assert.equal(await finish(asking, run), 'released');
    assert.equal((await refused(asking, key, tick)).reason, 'claimed');
  }),

  law('a run that was given back before it ended is taken over at once', async ({ key, open }) => {
    const asking = open();
    const run = somebody(key);
    const tick = at(Date.now());
    await granted(asking, run, tick);
    assert.equal(await asking.release(run), 'released');
    assert.equal((await granted(asking, somebody(key), tick)).attempt, 2);
  }),

  law('the end of a run counts after its lease, unless there is a newer run', async ({ key, open }) => {
    const asking = open();
    const [run, newer] = [somebody(key), somebody(key)];
    const tick = at(Date.now());
    await granted(asking, run, tick, LEASE_MS);
    while (await asking.inspect(key)) await new Promise((resolve) => setTimeout(resolve, 10));
    assert.equal(await finish(asking, run), 'released');
    assert.equal(await finish(asking, run), 'gone');
    assert.equal((await refused(asking, key, tick)).reason, 'claimed');
    await granted(asking, newer, at(tick.tickMs + 1));
    assert.equal(await finish(asking, run), 'gone');
    assert.equal((await asking.inspect(key))?.holder, newer.holder);
  }),

  law('the end of a run that somebody has taken over does not count', async ({ key, open }) => {
    const asking = open();
    const [late, next] = [somebody(key), somebody(key)];
    const tick = at(Date.now());
    await granted(asking, late, tick, LEASE_MS);
    while (await asking.inspect(key)) await new Promise((resolve) => setTimeout(resolve, 10));
    await granted(asking, next, tick);
    assert.equal(await finish(asking, late), 'gone');
    assert.equal((await asking.inspect(key))?.holder, next.holder);
    assert.equal(await finish(asking, next), 'released');
  }),

  law('a newer tick does not bury an older one that may be taken over', async ({ key, open }) => {
    const asking = open();
    const tick = at(Date.now());
    await die(asking, key, tick);
    const { reason, unfinishedMs } = await refused(asking, key, at(tick.tickMs + 1_000));
    assert.equal(reason, 'unfinished');
    assert.equal(unfinishedMs, tick.tickMs);
    const run = somebody(key);
    assert.equal((await granted(asking, run, tick)).attempt, 2);
    await finish(asking, run);
    assert.equal((await granted(asking, somebody(key), at(tick.tickMs + 1_000))).attempt, 1);
  }),

  law('a tick that is far ahead finds what may be taken over, too', async ({ key, open }) => {
    const asking = open();
    const ahead = at(Date.now() + 24 * HOUR_MS, { maxEarlyMs: 0 });
    assert.equal((await refused(asking, key, ahead)).reason, 'early');
    const tick = at(Date.now());
    await die(asking, key, tick);
    assert.equal((await refused(asking, key, ahead)).unfinishedMs, tick.tickMs);
  }),

  law('what died too long ago is not taken over and holds nobody up', async ({ key, open }) => {
    const asking = open();
    const tick = at(Date.now());
    await die(asking, key, tick);
    const limits = { staleAfterMs: 1 };
    await new Promise((resolve) => setTimeout(resolve, 20)); // Only time can make it too long ago.
    assert.equal((await refused(asking, key, { ...tick, ...limits })).reason, 'stale');
    await granted(asking, somebody(key), at(Date.now() + 60_000, limits));
  }),

  law('a long run that dies may be taken over long after its tick', async ({ key, open }) => {
    const asking = open();
    const tick = at(Date.now() - HOUR_MS / 2);
    await die(asking, key, tick);
    const taken = await granted(asking, somebody(key), { ...tick, staleAfterMs: HOUR_MS / 4 });
    assert.equal(taken.attempt, 2);
  }),

  law(
    'a long run that is given back before its end may be taken over long after its tick',
    async ({ key, open }) => {
      const asking = open();
      const run = somebody(key);
      const tick = at(Date.now() - HOUR_MS / 2);
      await granted(asking, run, tick);
      await asking.release(run);
      const limits = { staleAfterMs: HOUR_MS / 4 };
      assert.equal((await refused(asking, key, at(Date.now(), limits))).reason, 'unfinished');
      assert.equal((await granted(asking, somebody(key), { ...tick, ...limits })).attempt, 2);
    },
  ),

  law('a run that was given back too long ago is not taken over', async ({ key, open }) => {
    const asking = open();
    const run = somebody(key);
    const tick = at(Date.now() - HOUR_MS / 2);
    await granted(asking, run, tick);
    await asking.release(run);
    await new Promise((resolve) => setTimeout(resolve, 20)); // Only time can make it too long ago.
    assert.equal((await refused(asking, key, { ...tick, staleAfterMs: 1 })).reason, 'stale');
  }),

  law('a claim sent again by the run that took over is the same grant', async ({ key, open }) => {
    const asking = open();
    const tick = at(Date.now());
    await die(asking, key, tick);
    const run = somebody(key);
    const first = await granted(asking, run, tick);
    assert.deepEqual({ ...(await granted(asking, run, tick)) }, { ...first });
    assert.equal(first.attempt, 2);
  }),

  law('a late claim of a run that has ended is refused', async ({ key, open }) => {
    const asking = open();
    const run = somebody(key);
    const tick = at(Date.now());
    await granted(asking, run, tick);
    await finish(asking, run);
    assert.equal((await asking.acquire(run, { tick })).kind, 'refused');
  }),

  law('a job that is registered has nothing to catch up with', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const before = Date.now() - 60_000;
    const register = at(0, { isRegistration: true });
    const answers = await Promise.all([ours, ours, theirs].map((asking) => refused(asking, key, register)));
    const first = answers.filter(({ reason }) => reason === 'registered');
    assert.equal(first.length, 1, `expected one registration, got ${first.length}`);
    assert.equal((await refused(theirs, key, register)).reason, 'claimed');
    assert.equal((await refused(ours, key, at(before))).reason, 'claimed');
    assert.equal(await ours.inspect(key), null);
    await granted(ours, somebody(key), at(Date.now() + 60_000));
  }),

  law('a job that has run is registered already, and tells of a dead run', async ({ key, open }) => {
    const asking = open();
    const tick = at(Date.now());
    const register = at(0, { isRegistration: true });
    await granted(asking, somebody(key), tick, LEASE_MS);
    const { reason, aheadMs } = await refused(asking, key, register);
    assert.equal(reason, 'claimed');
    assert(Math.abs(-aheadMs - Date.now()) < HOUR_MS, 'expected the time of the store');
    while (await asking.inspect(key)) await new Promise((resolve) => setTimeout(resolve, 10));
    assert.equal((await refused(asking, key, register)).unfinishedMs, tick.tickMs);
  }),

  law('ticks with keys of their own are claimed side by side, once each', async ({ key, open }) => {
    const asking = open();
    const now = Date.now();
    const forget = (tickMs: number) => ({
      ...{ afterMs: HOUR_MS, fromKey: `${key}@`, beforeKey: `${key}@${tickMs - HOUR_MS}` },
    });
    const keys = [now - 2, now - 1, now].map((tickMs) => ({ tickMs, key: `${key}@${tickMs}` }));
    for (const one of keys) {
      const tick = at(one.tickMs, { forget: forget(one.tickMs) });
      await granted(asking, somebody(one.key), tick, LEASE_MS);
    }
    for (const one of keys) {
      const tick = at(one.tickMs, { maxAttempts: 1, forget: forget(one.tickMs) });
      assert.equal((await refused(asking, one.key, tick)).reason, 'claimed');
    }
  }),
];
