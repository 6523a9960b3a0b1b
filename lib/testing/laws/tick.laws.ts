import assert from 'node:assert/strict';
import {
  type Law,
  type LawSetup,
  LONG_LEASE_MS,
  createAcquisitionId,
  createTickClaim,
  law,
  nth,
} from './law.js';
import { RUN_LEASE_MS, type TickCase, WIDE_LIMITS, checkDecision, tickCases } from './tick-cases.js';

const HOUR_MS = 60 * 60 * 1_000;

/** Brings about what happened before the claim of a case. Needs no time: a run dies by a release without its end. */
async function prepare({ key, open }: LawSetup, before: TickCase['before'], nowMs: number): Promise<void> {
  const client = open();
  if (before === 'registration') await client.registerTicks(key);
  if (typeof before === 'string') return;
  const tick = { tickMs: nowMs + before.tickInMs, ...WIDE_LIMITS };
  for (let attempt = 1; attempt <= before.attempt; attempt += 1) {
    const run = createAcquisitionId(key);
    await client.expectGranted(run, { tick, leaseMs: RUN_LEASE_MS });
    if (attempt < before.attempt || before.state === 'released') await client.release(run);
    else if (before.state === 'ended') await client.endRun(run);
  }
}

/** The rule about ticks, case by case. It has no time or race in it, so one store of each implementation suffices. */
export const tickCaseLaws: readonly Law[] = tickCases.map((each) =>
  law(`a claim of a tick: ${each.title}`, async (setup) => {
    const nowMs = Date.now();
    await prepare(setup, each.before, nowMs);
    const tick = { tickMs: nowMs + each.tickInMs, ...each.limits };
    checkDecision(each, await setup.open().acquire(createAcquisitionId(setup.key), { tick }), nowMs);
  }),
);

/** A tick of a job is granted once, however much clocks differ and however short its run is. */
export const tickLaws: readonly Law[] = [
  ...tickCaseLaws,

  law('a tick that is refused as early has a positive distance', async ({ key, open }) => {
    const client = open();
    // The first try is early for certain. The others are early by fractions of a ms, or not, at random.
    for (let tries = 0; tries < 60; tries += 1) {
      const tick = createTickClaim(Date.now() + (tries === 0 ? HOUR_MS : tries % 4), { maxEarlyMs: 0 });
      const result = await client.acquire(createAcquisitionId(`${key}:${tries}`), { tick });
      const isEarly = result.kind === 'refused' && result.reason === 'early';
      assert(isEarly || tries > 0, `expected a tick in an hour to be early, got '${result.kind}'`);
      if (isEarly) assert(result.aheadMs > 0, `expected a time to wait, got ${result.aheadMs} ms`);
    }
  }),

  law('of many claims of a tick at once, one is granted', async ({ key, open }) => {
    const clients = [open(), open(), open()];
    const now = Date.now();
    for (let round = 0; round < 10; round += 1) {
      const tick = createTickClaim(now + round);
      const claimAndRelease = async (index: number) => {
        const run = createAcquisitionId(key);
        const { kind } = await nth(clients, index).acquire(run, { tick });
        if (kind === 'granted') await nth(clients, index).endRun(run);
        return kind;
      };
      const results = await Promise.all(Array.from({ length: 9 }, (_, index) => claimAndRelease(index)));
      const grants = results.filter((kind) => kind === 'granted').length;
      assert.equal(grants, 1, `expected one claim among 9, got ${grants}`);
    }
  }),

  law('a repeated claim of the same run is the same grant', async ({ key, open }) => {
    const client = open();
    // If a server of a quorum is slow to reply to the first claim, the second one gets a larger token.
    for (let triesLeft = 5; ; triesLeft -= 1) {
      const run = createAcquisitionId(`${key}:${triesLeft}`);
      const tick = createTickClaim(Date.now());
      const first = await client.expectGranted(run, { tick });
      const second = await client.expectGranted(run, { tick });
      if (triesLeft === 0) assert.equal(second, first);
      if (second === first) return;
      assert(second > first, 'expected no smaller token');
    }
  }),

  law('the fencing tokens of runs grow', async ({ key, open }) => {
    const client = open();
    let newest = 0n;
    for (let tickMs = Date.now(), last = tickMs + 10; tickMs < last; tickMs += 1) {
      const run = createAcquisitionId(key);
      const fencingToken = await client.expectGranted(run, { tick: createTickClaim(tickMs) });
      assert(fencingToken > newest, `expected more than ${newest}, got ${fencingToken}`);
      newest = fencingToken;
      await client.endRun(run);
    }
  }),

  law(
    'ticks with separate keys are claimed independently, once each',
    async ({ key, leaseMs: shortMs, open }) => {
      const client = open();
      const now = Date.now();
      const claim = (tickMs: number, leaseMs: number) => {
        const cleanUp = { afterMs: HOUR_MS, fromKey: `${key}@`, beforeKey: `${key}@${tickMs - HOUR_MS}` };
        const tick = createTickClaim(tickMs, { maxAttempts: 1, cleanUp });
        return client.acquire(createAcquisitionId(`${key}@${tickMs}`), { tick, leaseMs });
      };
      for (const [leaseMs, kind] of [[shortMs, 'granted'] as const, [LONG_LEASE_MS, 'refused'] as const]) {
        for (const tickMs of [now - 2, now - 1, now]) assert.equal((await claim(tickMs, leaseMs)).kind, kind);
      }
    },
  ),

  law('the ticks of a key are read with the time of the store', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const unclaimed = await ours.readTicks(key);
    assert.equal(unclaimed.claimed, undefined);
    assert(unclaimed.heldForMs <= 0, `expected a free key, got ${unclaimed.heldForMs} ms`);
    assert(Math.abs(unclaimed.nowMs - Date.now()) < HOUR_MS, `expected a time, got ${unclaimed.nowMs}`);
    const run = createAcquisitionId(key);
    const tick = createTickClaim(Date.now());
    await ours.expectGranted(run, { tick, leaseMs: 20_000 });
    const held = await theirs.readTicks(key);
    assert.deepEqual(held.claimed, { tickMs: tick.tickMs, attempt: 1 });
    assert(held.heldForMs > 0 && held.heldForMs <= 20_000, `expected a lease, got ${held.heldForMs} ms`);
    assert(held.nowMs >= unclaimed.nowMs, 'expected time to pass');
    assert(held.aliveUntilMs >= held.nowMs, 'expected a run in progress to be alive until its lease ends');
    await ours.endRun(run);
    const ended = await theirs.readTicks(key);
    assert.deepEqual(ended.claimed, { tickMs: tick.tickMs, attempt: 0 });
    assert(ended.heldForMs <= 0, `expected a free key, got ${ended.heldForMs} ms`);
  }),

  law('a registration claims all ticks before it, and leaves the key free', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    await Promise.all([ours, ours, theirs].map((client) => client.registerTicks(key)));
    const { nowMs, claimed } = await theirs.registerTicks(key);
    assert(claimed && claimed.tickMs <= nowMs, 'expected the time of the registration as the newest tick');
    assert.deepEqual((await ours.readTicks(key)).claimed, { tickMs: claimed.tickMs, attempt: 0 });
    assert.equal(await ours.inspect(key), null);
  }),

  law('a registration does not change a job that has run', async ({ key, open }) => {
    const client = open();
    const run = createAcquisitionId(key);
    const tick = createTickClaim(Date.now());
    await client.expectGranted(run, { tick });
    assert.deepEqual((await client.registerTicks(key)).claimed, { tickMs: tick.tickMs, attempt: 1 });
    assert.deepEqual((await client.readTicks(key)).claimed, { tickMs: tick.tickMs, attempt: 1 });
    assert.equal(await client.renew(run), 'renewed');
  }),
];
