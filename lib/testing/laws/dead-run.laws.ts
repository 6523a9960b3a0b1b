import assert from 'node:assert/strict';
import type { Granted } from '../../core/backend-results.js';
import type { TickClaim } from '../../core/tick.js';
import {
  type BackendClient,
  type Law,
  LONG_LEASE_MS,
  createAcquisitionId,
  createTickClaim,
  law,
} from './law.js';

const HOUR_MS = 60 * 60 * 1_000;

async function claimRun(
  client: BackendClient,
  key: string,
  tick: TickClaim,
  leaseMs = LONG_LEASE_MS,
): Promise<Granted & { readonly run: { readonly key: string; readonly holder: string } }> {
  const run = createAcquisitionId(key);
  const result = await client.acquire(run, { tick, leaseMs });
  assert(result.kind === 'granted', `expected the tick to be granted, got '${result.kind}'`);
  return { ...result, run };
}

/** Starts a run that dies. Its lease has expired when the promise resolves. */
async function createDeadRun(client: BackendClient, key: string, tick: TickClaim) {
  const dead = await claimRun(client, key, tick, client.leaseMs);
  await client.waitUntilFree(key);
  return dead;
}

async function expectRefused(client: BackendClient, key: string, tick: TickClaim, reason: string) {
  const result = await client.acquire(createAcquisitionId(key), { tick });
  assert.equal(result.kind === 'refused' ? result.reason : result.kind, reason);
}

/** What becomes of a tick when the lease of its run expires. Other cases need no time: `tickCases` has them. */
export const deadRunLaws: readonly Law[] = [
  law('a tick whose run died is granted again, with a larger fencing token', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const tick = createTickClaim(Date.now());
    const first = await createDeadRun(ours, key, tick);
    const second = await claimRun(theirs, key, tick);
    assert.deepEqual([first.attempt, second.attempt], [1, 2]);
    assert(second.fencingToken > first.fencingToken);
  }),

  law('of many takeovers of a dead run, one is granted', async ({ key, open }) => {
    const clients = [open(), open(), open()];
    const tick = createTickClaim(Date.now());
    await createDeadRun(open(), key, tick);
    const results = await Promise.all(
      [...clients, ...clients, ...clients].map((client) =>
        client.acquire(createAcquisitionId(key), { tick }),
      ),
    );
    assert.equal(results.filter(({ kind }) => kind === 'granted').length, 1);
  }),

  law('a dead run is still taken over after the key was held without a tick', async ({ key, open }) => {
    const client = open();
    const tick = createTickClaim(Date.now());
    await createDeadRun(client, key, tick);
    const untimed = createAcquisitionId(key);
    assert.equal((await client.acquire(untimed)).kind, 'granted');
    await expectRefused(client, key, tick, 'claimed');
    await client.release(untimed);
    assert.equal((await claimRun(client, key, tick)).attempt, 2);
  }),

  law('a tick is granted at most maxAttempts times', async ({ key, open }) => {
    const client = open();
    const tick = createTickClaim(Date.now(), { maxAttempts: 2 });
    await createDeadRun(client, key, tick);
    assert.equal((await createDeadRun(client, key, tick)).attempt, 2);
    await expectRefused(client, key, tick, 'claimed');
    assert.equal((await claimRun(client, key, { ...tick, tickMs: tick.tickMs + 1 })).attempt, 1);
  }),

  law('the end of a run counts once', async ({ key, open }) => {
    const client = open();
    const { run } = await claimRun(client, key, createTickClaim(Date.now()));
    assert.equal(await client.endRun(run), 'released');
    assert.equal(await client.endRun(run), 'gone');
  }),

  law('the end of a run counts after its lease, unless a newer run was granted', async ({ key, open }) => {
    const client = open();
    const tick = createTickClaim(Date.now());
    const { run } = await createDeadRun(client, key, tick);
    assert.equal(await client.endRun(run), 'released');
    assert.equal(await client.endRun(run), 'gone');
    await expectRefused(client, key, tick, 'claimed');
    const newer = await claimRun(client, key, createTickClaim(tick.tickMs + 1));
    assert.equal(await client.endRun(run), 'gone');
    assert.equal((await client.inspect(key))?.holder, newer.run.holder);
  }),

  law('the end of a run that was taken over does not count', async ({ key, open }) => {
    const client = open();
    const tick = createTickClaim(Date.now());
    const late = await createDeadRun(client, key, tick);
    const next = await claimRun(client, key, tick);
    assert.equal(await client.endRun(late.run), 'gone');
    assert.equal((await client.inspect(key))?.holder, next.run.holder);
    assert.equal(await client.endRun(next.run), 'released');
    await expectRefused(client, key, tick, 'claimed');
  }),

  law('a newer tick waits until the dead run was taken over and has ended', async ({ key, open }) => {
    const client = open();
    const tick = createTickClaim(Date.now());
    const newer = createTickClaim(tick.tickMs + 1_000);
    await createDeadRun(client, key, tick);
    await expectRefused(client, key, newer, 'unfinished');
    const { run, attempt } = await claimRun(client, key, tick);
    assert.equal(attempt, 2);
    await client.endRun(run);
    assert.equal((await claimRun(client, key, newer)).attempt, 1);
  }),

  law('a run that died too long ago does not block newer ticks', async ({ key, open }) => {
    const client = open();
    const tick = createTickClaim(Date.now());
    await createDeadRun(client, key, tick);
    const limits = { staleAfterMs: 1 };
    await new Promise((resolve) => setTimeout(resolve, 20)); // Only time can make it too long ago.
    await expectRefused(client, key, { ...tick, ...limits }, 'stale');
    await claimRun(client, key, createTickClaim(Date.now() + 60_000, limits));
  }),

  law('a long run that dies may be taken over long after its tick', async ({ key, open }) => {
    const client = open();
    const tick = createTickClaim(Date.now() - HOUR_MS / 2);
    await createDeadRun(client, key, tick);
    assert.equal((await claimRun(client, key, { ...tick, staleAfterMs: HOUR_MS / 4 })).attempt, 2);
  }),

  law('a repeated claim of the run that took over is the same grant', async ({ key, open }) => {
    const client = open();
    const tick = createTickClaim(Date.now());
    await createDeadRun(client, key, tick);
    const { run, ...first } = await claimRun(client, key, tick);
    assert.deepEqual({ ...(await client.acquire(run, { tick, leaseMs: LONG_LEASE_MS })) }, first);
    assert.equal(first.attempt, 2);
  }),

  law('a late claim of a run that has ended is refused', async ({ key, open }) => {
    const client = open();
    const tick = createTickClaim(Date.now());
    const { run } = await claimRun(client, key, tick);
    await client.endRun(run);
    assert.equal((await client.acquire(run, { tick })).kind, 'refused');
  }),
];
