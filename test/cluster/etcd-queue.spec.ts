import { expect, it } from 'vitest';
import { EtcdBackend } from '../../lib/backends/etcd/index.js';
import { startEtcd } from '../services/etcd.js';
import { until } from '../support/until.js';
import { createAcquireRequest, createAcquisitionId } from '../../lib/testing/laws/law.js';

const WAITERS = 200;
const TIMEOUT_MS = 10_000;
const settings = { leaseMs: 30_000, retryWithinMs: 60_000 };

it('a release wakes one of 200 waiting processes, and the next release the next one', async () => {
  const server = await startEtcd();
  const backends: EtcdBackend[] = [];
  const woken: number[] = [];
  const open = () => {
    const backend = new EtcdBackend({ hosts: server.url });
    backends.push(backend);
    return backend;
  };
  try {
    const key = 'crowd';
    const holder = createAcquisitionId(key);
    const first = open();
    const acquire = async (backend: EtcdBackend, acquisition: typeof holder) => {
      const request = createAcquireRequest(acquisition, settings);
      return (await backend.execute({ acquire: [request] }, TIMEOUT_MS)).acquire[0]?.kind;
    };
    expect(await acquire(first, holder)).toBe('granted');
    const waiters = [];
    for (let index = 0; index < WAITERS; index += 1) {
      const [backend, acquisition] = [open(), createAcquisitionId(key)];
      backend.onReleased(({ key: freed }) => {
        if (freed === key) woken.push(index);
      });
      // One after the other, so the order of the queue is known.
      expect(await acquire(backend, acquisition)).toBe('taken');
      waiters.push({ backend, acquisition });
    }
    expect((await first.inspect(key, TIMEOUT_MS))?.queued).toBe(WAITERS);
    await first.execute({ release: [holder] }, TIMEOUT_MS);
    await until(() => woken.length > 0);
    for (let turn = 0; turn < 5; turn += 1) {
      const next = waiters[turn];
      if (!next) throw new Error('Expected a waiter.');
      await until(() => woken.length > turn);
      expect(await acquire(next.backend, next.acquisition)).toBe('granted');
      await next.backend.execute({ release: [next.acquisition] }, TIMEOUT_MS);
    }
    await until(() => woken.length > 5);
    expect(woken).toEqual([0, 1, 2, 3, 4, 5]);
  } finally {
    await Promise.all(backends.map((backend) => backend.close()));
    await server.stop();
  }
}, 120_000);
