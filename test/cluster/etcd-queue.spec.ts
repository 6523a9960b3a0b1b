import { expect, it } from 'vitest';
import { EtcdBackend } from '../../lib/backends/etcd/index.js';
import { startEtcd } from '../services/etcd.js';
import { until } from '../support/until.js';
import { createAcquireRequest, createAcquisitionId } from '../../lib/testing/laws/law.js';

const WAITERS = 200;
const TURNS = 5;
const TIMEOUT_MS = 10_000;
// So long that no session is renewed while requests are counted.
const settings = { leaseMs: 9_000_000, retryWithinMs: 9_000_000 };

/** How many requests of each kind etcd has received, and messages of watches. */
async function readRequestCounts(url: string): Promise<Record<'Txn' | 'Range' | 'Watch', number>> {
  const metrics = await (await fetch(`${url}/metrics`)).text();
  const valueOf = (name: string, method: string) => {
    const line = new RegExp(`^${name}\\{grpc_method="${method}",.*\\} (\\S+)$`, 'm').exec(metrics);
    return Number(line?.[1] ?? 0);
  };
  return {
    Txn: valueOf('grpc_server_started_total', 'Txn'),
    Range: valueOf('grpc_server_started_total', 'Range'),
    Watch: valueOf('grpc_server_msg_received_total', 'Watch'),
  };
}

it('a release wakes one of 200 waiting processes, and only that one sends requests', async () => {
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
    const waiters: { readonly backend: EtcdBackend; readonly acquisition: typeof holder }[] = [];
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
    await until(async () => (await readRequestCounts(server.url)).Watch === WAITERS);
    const before = await readRequestCounts(server.url);

    await first.execute({ release: [holder] }, TIMEOUT_MS);
    for (const [turn, { backend, acquisition }] of waiters.slice(0, TURNS).entries()) {
      await until(() => woken.length > turn);
      expect(await acquire(backend, acquisition)).toBe('granted');
      await backend.execute({ release: [acquisition] }, TIMEOUT_MS);
    }
    await until(() => woken.length > TURNS);
    expect(woken).toEqual([0, 1, 2, 3, 4, 5]);

    // Each turn is an acquisition, a release, and the end of a watch. The first release and the last notice come on top.
    const after = await readRequestCounts(server.url);
    expect({ Txn: after.Txn - before.Txn, Range: after.Range - before.Range }).toEqual({
      ...{ Txn: 2 * TURNS + 1, Range: 0 },
    });
    expect(after.Watch - before.Watch).toBeLessThanOrEqual(TURNS + 1);
  } finally {
    await Promise.all(backends.map((backend) => backend.close()));
    await server.stop();
  }
}, 120_000);
