import { AsyncLocalStorage } from 'node:async_hooks';
import { expect, it } from '@jest/globals';
import { currentLock } from '../../../lib/core/chain.js';
import { MemoryBackend } from '../../../lib/backends/memory/memory-backend.js';
import { bareLocks } from '../../bare-locks.js';

/** On the clock of the machine: simulated time has one asynchronous context. */
const open = () => bareLocks({ backend: new MemoryBackend(), namespace: 'lock' });

it('what a lock tells its holder comes in the context of no other caller', async () => {
  const locks = open();
  const request = new AsyncLocalStorage<string>();
  const lapsing = await locks.acquire('lapsing', { leaseMs: 100, renew: false });
  const told = new Promise((resolve) =>
    lapsing.signal.addEventListener('abort', () => resolve([request.getStore(), currentLock()?.key])),
  );
  await request.run('a request', () =>
    locks.withLock('other', {}, async () => {
      await locks.tryAcquire('arms the timer', { leaseMs: 20, renew: false });
      await told;
    }),
  );
  expect(await told).toEqual([undefined, undefined]);
  await locks.close();
});
