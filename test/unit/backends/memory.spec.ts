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
