import { AsyncLocalStorage } from 'node:async_hooks';
import { expect, it } from '@jest/globals';
import { currentLock } from '../../../lib/core/chain.js';
import { Events } from '../../../lib/core/events.js';
import { Locks } from '../../../lib/core/locks.js';
import { BUILT_IN_LOCK_OPTIONS } from '../../../lib/core/options.js';
import { MemoryBackend } from '../../../lib/backends/memory/memory-backend.js';

/** On the clock of the machine: simulated time has one asynchronous context. */
const open = () =>
  new Locks({
    backend: new MemoryBackend(),
    namespace: 'lock',
    instance: 'ours',
    defaults: BUILT_IN_LOCK_OPTIONS,
    events: new Events({ namespace: 'lock', instance: 'ours' }),
  });

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
