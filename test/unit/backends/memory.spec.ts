import { expect, it } from 'vitest';
import { MemoryBackend, memoryBackend } from '../../../lib/backends/memory/memory-backend.js';
import { SettableClock } from '../../../lib/testing/settable-clock.js';

it('the end of a run whose lease is over is noted, also after many other leases ran out', async () => {
  const clock = new SettableClock();
  const backend = new MemoryBackend({ clock });
  const tick = { tickMs: clock.wallMs(), maxEarlyMs: 1_000, staleAfterMs: 60_000, maxAttempts: 2 };
  const ask = (key: string, holder: string, leaseMs = 10) => ({ key, holder, leaseMs, instance: 'spec' });
  await backend.execute({ acquire: [{ ...ask('job', 'run'), tick }] });
  clock.freeze(20);
  for (let index = 0; index < 2_000; index += 1) {
    await backend.execute({ acquire: [ask(`key ${index}`, 'holder')] });
  }
  const ended = await backend.execute({ release: [{ key: 'job', holder: 'run', hasEnded: true }] });
  expect(ended.release).toEqual([{ kind: 'released' }]);
  const again = await backend.execute({ acquire: [{ ...ask('job', 'another'), tick }] });
  expect(again.acquire).toMatchObject([{ kind: 'refused', reason: 'claimed' }]);
});

it('the tick of a run that was renewed is kept for as long as the run may be retried', async () => {
  const clock = new SettableClock();
  const backend = new MemoryBackend({ clock });
  const tickAt = (key: string, keptMs: number) => ({
    ...{ key, holder: 'run', leaseMs: 1_000, instance: 'spec' },
    tick: {
      ...{ tickMs: clock.wallMs(), maxEarlyMs: 1_000, staleAfterMs: 5_000, maxAttempts: 2 },
      cleanUp: { afterMs: keptMs, fromKey: '', beforeKey: '' },
    },
  });
  await backend.execute({ acquire: [tickAt('job', 6_000)] });
  for (let second = 0; second < 10; second += 1) {
    clock.freeze(900);
    await backend.execute({ renew: [{ key: 'job', holder: 'run', leaseMs: 1_000 }] });
  }
  for (let index = 0; index < 1_000; index += 1)
    await backend.execute({ acquire: [tickAt(`key ${index}`, Infinity)] });
  expect((await backend.readTicks('job')).claimed).toBeDefined();
});

it('tokens that nobody used are given back, so that those of a busy process do not run ahead of the clock', async () => {
  const clock = new SettableClock();
  const backend = new MemoryBackend({ clock });
  const request = { key: 'key', leaseMs: 1_000, instance: 'spec', tokenCount: 64 };
  const tokens: bigint[] = [];
  for (let index = 0; index < 100; index += 1) {
    const holder = `holder ${index}`;
    const { acquire } = await backend.execute({ acquire: [{ ...request, holder }] });
    if (acquire[0]?.kind === 'granted') tokens.push(acquire[0].fencingToken);
    await backend.execute({ release: [{ key: 'key', holder, usedOneToken: true }] });
  }
  expect(tokens.map((token) => Number(token - tokens[0]!))).toEqual(tokens.map((_, index) => index));
});

it('an option that the backend does not know is an error', () => {
  const options: object = { clok: new SettableClock() };
  expect(() => memoryBackend(options)).toThrow(
    "Wrong memoryBackend() options: the argument has no option 'clok'; it knows clock",
  );
});
