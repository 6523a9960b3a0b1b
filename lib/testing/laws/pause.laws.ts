import assert from 'node:assert/strict';
import { type BackendClient, type Law, createAcquisitionId, createTickClaim, law, nth } from './law.js';

async function expectPaused(client: BackendClient, key: string, tickMs: number): Promise<void> {
  const result = await client.acquire(createAcquisitionId(key), { tick: createTickClaim(tickMs) });
  assert.equal(result.kind === 'refused' ? result.reason : result.kind, 'paused');
}

async function runTick(client: BackendClient, key: string, tickMs: number): Promise<void> {
  const run = createAcquisitionId(key);
  await client.expectGranted(run, { tick: createTickClaim(tickMs) });
  await client.endRun(run);
}

const MINUTE_MS = 60_000;

/** A pause of a job holds for all processes, until it is resumed. */
export const pauseLaws: readonly Law[] = [
  law('a pause refuses ticks of a job that has run, in all processes', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    const tickMs = Date.now();
    await runTick(ours, key, tickMs);
    await ours.setPaused(key, true);
    await expectPaused(theirs, key, tickMs + MINUTE_MS);
    await expectPaused(ours, key, tickMs);
    const { isPaused, claimed } = await theirs.readTicks(key);
    assert.deepEqual({ isPaused, claimed }, { isPaused: true, claimed: { tickMs, attempt: 0 } });
  }),

  law('a pause refuses ticks of a job that is new', async ({ key, open }) => {
    const client = open();
    await client.setPaused(key, true);
    await client.setPaused(key, true);
    await expectPaused(client, key, Date.now() + MINUTE_MS);
    assert.equal((await client.registerTicks(key)).isPaused, true);
    assert.equal(await client.inspect(key), null);
  }),

  law('after a resumption, ticks up to then count as claimed', async ({ key, open }) => {
    const [ours, theirs] = [open(), open()];
    await runTick(ours, key, Date.now() - MINUTE_MS);
    await ours.setPaused(key, true);
    await theirs.setPaused(key, false);
    const { isPaused, claimed, nowMs } = await ours.readTicks(key);
    assert.equal(isPaused ?? false, false);
    assert(
      claimed && Math.abs(claimed.tickMs - nowMs) < MINUTE_MS / 2,
      'expected the time as the newest tick',
    );
    const late = await ours.acquire(createAcquisitionId(key), { tick: createTickClaim(claimed.tickMs) });
    assert.equal(late.kind === 'refused' ? late.reason : late.kind, 'claimed');
    await runTick(theirs, key, claimed.tickMs + MINUTE_MS);
  }),

  law('a resumption does not bring back a tick that was claimed early', async ({ key, open }) => {
    const client = open();
    const tickMs = Date.now() + MINUTE_MS;
    await runTick(client, key, tickMs);
    await client.setPaused(key, true);
    await client.setPaused(key, false);
    assert.equal((await client.readTicks(key)).claimed?.tickMs, tickMs);
  }),

  law('a resumption of a job that is not paused changes nothing', async ({ key, open }) => {
    const client = open();
    await client.setPaused(key, false);
    assert.equal((await client.readTicks(key)).claimed, undefined);
    const tickMs = Date.now() - MINUTE_MS;
    await runTick(client, key, tickMs);
    await client.setPaused(key, false);
    assert.deepEqual((await client.readTicks(key)).claimed, { tickMs, attempt: 0 });
  }),

  law('a run in progress survives a pause, and its end keeps the pause', async ({ key, open }) => {
    const client = open();
    const run = createAcquisitionId(key);
    const tick = createTickClaim(Date.now());
    const fencingToken = await client.expectGranted(run, { tick });
    await client.setPaused(key, true);
    assert.equal(await client.renew(run), 'renewed');
    const again = await client.acquire(run, { tick });
    assert.deepEqual({ ...again }, { kind: 'granted', fencingToken, attempt: 1 });
    assert.equal(await client.endRun(run), 'released');
    await expectPaused(client, key, tick.tickMs + MINUTE_MS);
  }),

  law('a pause that ends during a run leaves the run as it is', async ({ key, open }) => {
    const client = open();
    const run = createAcquisitionId(key);
    const tick = createTickClaim(Date.now());
    await client.expectGranted(run, { tick });
    await client.setPaused(key, true);
    await client.setPaused(key, false);
    assert.deepEqual((await client.readTicks(key)).claimed, { tickMs: tick.tickMs, attempt: 1 });
    await client.release(run);
    const { kind } = await client.acquire(createAcquisitionId(key), { tick });
    assert.equal(kind, 'granted');
  }),

  law('a dead run is not taken over during a pause, nor after it', async ({ key, open }) => {
    const client = open();
    const run = createAcquisitionId(key);
    const tick = createTickClaim(Date.now());
    await client.expectGranted(run, { tick });
    await client.release(run);
    await client.setPaused(key, true);
    await expectPaused(client, key, tick.tickMs);
    await client.setPaused(key, false);
    await runTick(client, key, tick.tickMs + MINUTE_MS);
  }),

  law('a pause does not refuse the lock of the key, which keeps the pause', async ({ key, open }) => {
    const client = open();
    await client.setPaused(key, true);
    const byHand = createAcquisitionId(key);
    await client.expectGranted(byHand);
    await expectPaused(client, key, Date.now());
    assert.equal(await client.renew(byHand), 'renewed');
    assert.equal(await client.release(byHand), 'released');
    await expectPaused(client, key, Date.now());
  }),

  law('of claims and pauses at once, no claim after a pause is granted', async ({ key, open }) => {
    const clients = [open(), open(), open()];
    let tickMs = Date.now();
    for (let round = 0; round < 5; round += 1) {
      let isPaused = false;
      const claim = async (index: number) => {
        const wasPaused = isPaused;
        const run = createAcquisitionId(key);
        tickMs += 1;
        const { kind } = await nth(clients, index).acquire(run, { tick: createTickClaim(tickMs) });
        if (kind === 'granted') await nth(clients, index).endRun(run);
        assert(kind !== 'granted' || !wasPaused, 'expected no grant after the pause');
      };
      const pause = async () => {
        await nth(clients, round).setPaused(key, true);
        isPaused = true;
        await claim(round + 1);
      };
      await Promise.all([claim(0), claim(1), pause(), claim(2)]);
      await expectPaused(nth(clients, 0), key, tickMs + MINUTE_MS);
      await nth(clients, round + 1).setPaused(key, false);
      tickMs = Math.max(tickMs, (await nth(clients, 0).readTicks(key)).claimed?.tickMs ?? 0) + 1_000;
    }
  }),
];
