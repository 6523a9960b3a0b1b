import assert from 'node:assert/strict';
import type { Claim, Granted, ReleaseResult, TickClaim, TickRefused } from '../../core/backend.js';
import {
  type BackendClient,
  type Law,
  LEASE_MS,
  LONG_LEASE_MS,
  TIMEOUT_MS,
  createClaim,
  law,
  requireKnown,
} from './law.js';

const HOUR_MS = 60 * 60 * 1_000;

const createTickClaim = (tickMs: number, limits: Partial<TickClaim> = {}): TickClaim => ({
  ...{ tickMs, maxEarlyMs: HOUR_MS, staleAfterMs: HOUR_MS, maxAttempts: 3 },
  ...limits,
});

async function expectRefused(client: BackendClient, key: string, tick: TickClaim): Promise<TickRefused> {
  const result = await client.acquire(createClaim(key), { tick });
  assert(result.kind === 'refused', `expected the tick to be refused, got '${result.kind}'`);
  return result;
}

async function expectGranted(
  client: BackendClient,
  run: Claim,
  tick: TickClaim,
  leaseMs = LONG_LEASE_MS,
): Promise<Granted> {
  const result = await client.acquire(run, { tick, leaseMs });
  assert(result.kind === 'granted', `expected the tick to be granted, got '${result.kind}'`);
  return result;
}

async function endRun(client: BackendClient, run: Claim): Promise<ReleaseResult['kind']> {
  const { release } = await client.backend.execute({ release: [{ ...run, hasEnded: true }] }, TIMEOUT_MS);
  return requireKnown(release[0]).kind;
}

/** Starts a run that dies. Its lease has expired when the promise resolves. */
async function createDeadRun(client: BackendClient, key: string, tick: TickClaim): Promise<Granted> {
  const dead = await expectGranted(client, createClaim(key), tick, LEASE_MS);
  // The only way to see a lease end by the store's clock is to let that time pass.
  while (await client.inspect(key)) await new Promise((resolve) => setTimeout(resolve, 10));
  return dead;
}

/** A tick whose run died is granted again if its claims allow more than one attempt. No other tick is. */
export const deadRunLaws: readonly Law[] = [
  law('a tick whose run died is granted again, with a larger fencing token', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const tick = createTickClaim(Date.now());
    const first = await createDeadRun(ours, key, tick);
    assert.equal(first.attempt, 1);
    const second = await expectGranted(theirs, createClaim(key), tick);
    assert.equal(second.attempt, 2);
    assert(second.fencingToken > first.fencingToken);
  }),

  law('of many takeovers of a dead run, one is granted', async ({ key, open }) => {
    const backends = [open(), open(), open()];
    const tick = createTickClaim(Date.now());
    await createDeadRun(open(), key, tick);
    const results = await Promise.all(
      [...backends, ...backends, ...backends].map((client) => client.acquire(createClaim(key), { tick })),
    );
    assert.equal(results.filter(({ kind }) => kind === 'granted').length, 1);
  }),

  law('a tick is granted at most maxAttempts times', async ({ key, open }) => {
    const client = open();
    const tick = createTickClaim(Date.now(), { maxAttempts: 2 });
    await createDeadRun(client, key, tick);
    assert.equal((await createDeadRun(client, key, tick)).attempt, 2);
    assert.equal((await expectRefused(client, key, tick)).reason, 'claimed');
    const next = { ...tick, tickMs: tick.tickMs + 1 };
    assert.equal((await expectGranted(client, createClaim(key), next)).attempt, 1);
  }),

  law('a claim with one attempt does not take over a dead run', async ({ key, open }) => {
    const client = open();
    const tick = createTickClaim(Date.now(), { maxAttempts: 1 });
    await createDeadRun(client, key, tick);
    assert.equal((await expectRefused(client, key, tick)).reason, 'claimed');
    await expectGranted(client, createClaim(key), { ...tick, tickMs: tick.tickMs + 1 });
  }),

  law('while a run lasts, claims that may take it over learn when its lease ends', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const tick = createTickClaim(Date.now());
    await expectGranted(ours, createClaim(key), tick, 20_000);
    const { reason, retryInMs = 0 } = await expectRefused(theirs, key, tick);
    assert.equal(reason, 'claimed');
    assert(retryInMs > 0 && retryInMs <= 20_000, `expected the rest of the lease, got ${retryInMs} ms`);
    assert.equal((await expectRefused(theirs, key, createTickClaim(tick.tickMs - 1))).retryInMs, undefined);
    assert.equal((await expectRefused(theirs, key, { ...tick, maxAttempts: 1 })).retryInMs, undefined);
  }),

  law('a run that has ended is not taken over', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const run = createClaim(key);
    const tick = createTickClaim(Date.now());
    await expectGranted(ours, run, tick);
    assert.equal(await endRun(ours, run), 'released');
    assert.equal(await endRun(ours, run), 'gone');
    assert.equal((await expectRefused(theirs, key, tick)).reason, 'claimed');
    await expectGranted(theirs, createClaim(key), createTickClaim(tick.tickMs + 1));
  }),

  law('a run that took over and has ended is not taken over', async ({ key, open }) => {
    const client = open();
    const tick = createTickClaim(Date.now());
    await createDeadRun(client, key, tick);
    const run = createClaim(key);
    await expectGranted(client, run, tick);
    assert.equal(await endRun(client, run), 'released');
    assert.equal((await expectRefused(client, key, tick)).reason, 'claimed');
  }),

  law('a run whose lock was released before its end is taken over at once', async ({ key, open }) => {
    const client = open();
    const run = createClaim(key);
    const tick = createTickClaim(Date.now());
    await expectGranted(client, run, tick);
    assert.equal(await client.release(run), 'released');
    assert.equal((await expectGranted(client, createClaim(key), tick)).attempt, 2);
  }),

  law('the end of a run counts after its lease, unless a newer run was granted', async ({ key, open }) => {
    const client = open();
    const [run, newer] = [createClaim(key), createClaim(key)];
    const tick = createTickClaim(Date.now());
    await expectGranted(client, run, tick, LEASE_MS);
    while (await client.inspect(key)) await new Promise((resolve) => setTimeout(resolve, 10));
    assert.equal(await endRun(client, run), 'released');
    assert.equal(await endRun(client, run), 'gone');
    assert.equal((await expectRefused(client, key, tick)).reason, 'claimed');
    await expectGranted(client, newer, createTickClaim(tick.tickMs + 1));
    assert.equal(await endRun(client, run), 'gone');
    assert.equal((await client.inspect(key))?.holder, newer.holder);
  }),

  law('the end of a run that was taken over does not count', async ({ key, open }) => {
    const client = open();
    const [late, next] = [createClaim(key), createClaim(key)];
    const tick = createTickClaim(Date.now());
    await expectGranted(client, late, tick, LEASE_MS);
    while (await client.inspect(key)) await new Promise((resolve) => setTimeout(resolve, 10));
    await expectGranted(client, next, tick);
    assert.equal(await endRun(client, late), 'gone');
    assert.equal((await client.inspect(key))?.holder, next.holder);
    assert.equal(await endRun(client, next), 'released');
  }),

  law('a newer tick does not replace an older one that may be taken over', async ({ key, open }) => {
    const client = open();
    const tick = createTickClaim(Date.now());
    await createDeadRun(client, key, tick);
    const { reason, unfinishedMs } = await expectRefused(client, key, createTickClaim(tick.tickMs + 1_000));
    assert.equal(reason, 'unfinished');
    assert.equal(unfinishedMs, tick.tickMs);
    const run = createClaim(key);
    assert.equal((await expectGranted(client, run, tick)).attempt, 2);
    await endRun(client, run);
    assert.equal(
      (await expectGranted(client, createClaim(key), createTickClaim(tick.tickMs + 1_000))).attempt,
      1,
    );
  }),

  law('a tick that is far ahead also finds a run that may be taken over', async ({ key, open }) => {
    const client = open();
    const ahead = createTickClaim(Date.now() + 24 * HOUR_MS, { maxEarlyMs: 0 });
    assert.equal((await expectRefused(client, key, ahead)).reason, 'early');
    const tick = createTickClaim(Date.now());
    await createDeadRun(client, key, tick);
    assert.equal((await expectRefused(client, key, ahead)).unfinishedMs, tick.tickMs);
  }),

  law(
    'a run that died too long ago is not taken over and does not block newer ticks',
    async ({ key, open }) => {
      const client = open();
      const tick = createTickClaim(Date.now());
      await createDeadRun(client, key, tick);
      const limits = { staleAfterMs: 1 };
      await new Promise((resolve) => setTimeout(resolve, 20)); // Only time can make it too long ago.
      assert.equal((await expectRefused(client, key, { ...tick, ...limits })).reason, 'stale');
      await expectGranted(client, createClaim(key), createTickClaim(Date.now() + 60_000, limits));
    },
  ),

  law('a long run that dies may be taken over long after its tick', async ({ key, open }) => {
    const client = open();
    const tick = createTickClaim(Date.now() - HOUR_MS / 2);
    await createDeadRun(client, key, tick);
    const taken = await expectGranted(client, createClaim(key), { ...tick, staleAfterMs: HOUR_MS / 4 });
    assert.equal(taken.attempt, 2);
  }),

  law(
    'a long run whose lock is released before its end may be taken over long after its tick',
    async ({ key, open }) => {
      const client = open();
      const run = createClaim(key);
      const tick = createTickClaim(Date.now() - HOUR_MS / 2);
      await expectGranted(client, run, tick);
      await client.release(run);
      const limits = { staleAfterMs: HOUR_MS / 4 };
      assert.equal(
        (await expectRefused(client, key, createTickClaim(Date.now(), limits))).reason,
        'unfinished',
      );
      assert.equal((await expectGranted(client, createClaim(key), { ...tick, ...limits })).attempt, 2);
    },
  ),

  law('a run whose lock was released too long ago is not taken over', async ({ key, open }) => {
    const client = open();
    const run = createClaim(key);
    const tick = createTickClaim(Date.now() - HOUR_MS / 2);
    await expectGranted(client, run, tick);
    await client.release(run);
    await new Promise((resolve) => setTimeout(resolve, 20)); // Only time can make it too long ago.
    assert.equal((await expectRefused(client, key, { ...tick, staleAfterMs: 1 })).reason, 'stale');
  }),

  law('a repeated claim of the run that took over is the same grant', async ({ key, open }) => {
    const client = open();
    const tick = createTickClaim(Date.now());
    await createDeadRun(client, key, tick);
    const run = createClaim(key);
    const first = await expectGranted(client, run, tick);
    assert.deepEqual({ ...(await expectGranted(client, run, tick)) }, { ...first });
    assert.equal(first.attempt, 2);
  }),

  law('a late claim of a run that has ended is refused', async ({ key, open }) => {
    const client = open();
    const run = createClaim(key);
    const tick = createTickClaim(Date.now());
    await expectGranted(client, run, tick);
    await endRun(client, run);
    assert.equal((await client.acquire(run, { tick })).kind, 'refused');
  }),

  law('a registered job has no missed ticks', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const before = Date.now() - 60_000;
    await Promise.all([ours, ours, theirs].map((client) => client.registerTicks(key)));
    const { nowMs, claimed } = await theirs.registerTicks(key);
    assert(claimed && claimed.tickMs <= nowMs, 'expected the time of the registration as the newest tick');
    assert.deepEqual((await ours.readTicks(key)).claimed, { tickMs: claimed.tickMs, attempt: 0 });
    assert.equal((await expectRefused(ours, key, createTickClaim(before))).reason, 'claimed');
    assert.equal(await ours.inspect(key), null);
    await expectGranted(ours, createClaim(key), createTickClaim(Date.now() + 60_000));
  }),

  law('a job that has run counts as registered', async ({ key, open }) => {
    const client = open();
    const run = createClaim(key);
    const tick = createTickClaim(Date.now());
    await expectGranted(client, run, tick);
    const { claimed } = await client.registerTicks(key);
    assert.deepEqual(claimed, { tickMs: tick.tickMs, attempt: 1 });
    assert.equal(await client.renew(run), 'renewed');
    assert.equal((await expectRefused(client, key, tick)).reason, 'claimed');
  }),

  law('ticks with separate keys are claimed independently, once each', async ({ key, open }) => {
    const client = open();
    const now = Date.now();
    const cleanUp = (tickMs: number) => ({
      ...{ afterMs: HOUR_MS, fromKey: `${key}@`, beforeKey: `${key}@${tickMs - HOUR_MS}` },
    });
    const keys = [now - 2, now - 1, now].map((tickMs) => ({ tickMs, key: `${key}@${tickMs}` }));
    for (const one of keys) {
      const tick = createTickClaim(one.tickMs, { cleanUp: cleanUp(one.tickMs) });
      await expectGranted(client, createClaim(one.key), tick, LEASE_MS);
    }
    for (const one of keys) {
      const tick = createTickClaim(one.tickMs, { maxAttempts: 1, cleanUp: cleanUp(one.tickMs) });
      assert.equal((await expectRefused(client, one.key, tick)).reason, 'claimed');
    }
  }),
];
