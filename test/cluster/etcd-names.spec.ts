import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type EtcdBackend, etcdBackend } from '../../lib/backends/etcd/index.js';
import { keysOf, read, remove } from '../../lib/backends/etcd/rpc/operations.js';
import type { AcquisitionId } from '../../lib/core/backend.js';
import { createAcquireRequest, createAcquisitionId } from '../../lib/testing/laws/law.js';
import { FaultProxy } from '../faults/injection/fault-proxy.js';
import { startEtcd } from '../services/etcd.js';
import type { Service } from '../services/service.js';
import { etcdKeys, onEtcd } from '../support/etcd.js';
import { openEtcdParts } from '../support/etcd-parts.js';
import { until } from '../support/until.js';

const TIMEOUT_MS = 10_000;
const LEASE_MS = 60_000;
let server: Service;
const opened: { close(): unknown }[] = [];

beforeAll(async () => {
  server = await startEtcd();
});
afterEach(async () => {
  for (const one of opened.splice(0)) await one.close();
});
afterAll(() => server.stop());

const open = (hosts: string = server.url) => {
  const backend = etcdBackend({ hosts });
  opened.unshift(backend);
  return backend;
};

const acquire = async (backend: EtcdBackend, id: AcquisitionId, retryWithinMs = 0) =>
  (
    await backend.execute(
      { acquire: [createAcquireRequest(id, { leaseMs: LEASE_MS, retryWithinMs })] },
      TIMEOUT_MS,
    )
  ).acquire[0]?.kind;

const release = async (backend: EtcdBackend, id: AcquisitionId) =>
  (await backend.execute({ release: [id] }, TIMEOUT_MS)).release[0]?.kind;

async function namesAt(key: string): Promise<string[]> {
  const { responses } = await onEtcd(server.url, [read(etcdKeys.locksOf(key))]);
  return keysOf(responses[0]).map((entry) => entry.key.toString());
}

/** etcd keeps each deleted name in its index until its history is compacted, and reads all of a key. */
describe('the name of a lock in etcd', () => {
  it('is used again by the next lock of the key, and by the next place in its queue', async () => {
    const [backend, theirs] = [open(), open()];
    const seen = new Set<string>();
    for (let count = 0; count < 3; count += 1) {
      const [lock, holder, waiter] = [1, 2, 3].map(() => createAcquisitionId('again'));
      expect(await acquire(backend, lock!)).toBe('granted');
      for (const name of await namesAt('again')) seen.add(name);
      expect(await release(backend, lock!)).toBe('released');
      expect(await acquire(theirs, holder!)).toBe('granted');
      expect(await acquire(backend, waiter!, LEASE_MS)).toBe('taken');
      for (const name of await namesAt('again')) seen.add(name);
      await release(backend, waiter!);
      expect(await release(theirs, holder!)).toBe('released');
    }
    // One of each process.
    expect(seen.size).toBe(2);
  });

  it('is used again after a call that did not wait found the key taken', async () => {
    const [backend, theirs] = [open(), open()];
    const holder = createAcquisitionId('refused');
    expect(await acquire(theirs, holder)).toBe('granted');
    for (let count = 0; count < 3; count += 1)
      expect(await acquire(backend, createAcquisitionId('refused'))).toBe('taken');
    await release(theirs, holder);
    expect(await acquire(backend, createAcquisitionId('refused'))).toBe('granted');
    expect((await namesAt('refused'))[0]).toMatch(/\.0$/);
  });

  it('is not used again while a request with an unknown outcome may create it', async () => {
    const proxy = await FaultProxy.to(server.port);
    opened.push(proxy);
    const backend = open(`127.0.0.1:${proxy.port}`);
    const first = createAcquisitionId('doubt');
    expect(await acquire(backend, first)).toBe('granted');
    const [name] = await namesAt('doubt');
    expect(await release(backend, first)).toBe('released');
    proxy.setConditions({ cuts: 'reply' });
    let lost: AcquisitionId;
    // The request of a renewal may be cut instead.
    do lost = createAcquisitionId('doubt');
    while ((await acquire(backend, lost)) !== 'unknown' && (await release(backend, lost)));
    proxy.heal();
    await until(async () => (await release(backend, lost)) !== 'unknown');
    const next = createAcquisitionId('doubt');
    await until(async () => (await acquire(backend, next)) === 'granted');
    expect(await namesAt('doubt')).not.toContain(name);
    expect(await release(backend, next)).toBe('released');
  });

  it('is that of a later lock when a release arrives late, which then deletes nothing', async () => {
    const { connection, ...parts } = openEtcdParts(server.url);
    opened.push(parts);
    const backend = open();
    const [earlier, later] = [createAcquisitionId('late'), createAcquisitionId('late')];
    const grant = async (id: AcquisitionId) => {
      const request = createAcquireRequest(id, { leaseMs: LEASE_MS });
      await parts.acquisitions.acquire([{ index: 0, request }], TIMEOUT_MS, () => undefined);
    };
    await grant(earlier);
    const name = parts.names.find('late', earlier.holder)!;
    connection.loses = true;
    await new Promise<void>((resolve) => {
      void parts.releases.release([earlier], TIMEOUT_MS, () => resolve());
    });
    await until(() => connection.delayed !== undefined);
    await new Promise<void>((resolve) => {
      void parts.releases.release([earlier], TIMEOUT_MS, () => resolve());
    });
    await grant(later);
    expect(parts.names.find('late', later.holder)).toEqual(name);
    await connection.arrive();
    expect((await backend.inspect('late', TIMEOUT_MS))?.holder).toBe(later.holder);
  });

  it('is found by the holder after the backend was closed', async () => {
    const backend = open();
    const [first, second] = [createAcquisitionId('closed'), createAcquisitionId('closed')];
    expect(await acquire(backend, first)).toBe('granted');
    await backend.close();
    expect(await acquire(backend, second, LEASE_MS)).toBe('taken');
    expect(await release(backend, first)).toBe('released');
    expect(await acquire(backend, second, LEASE_MS)).toBe('granted');
  });

  it('is found by the holder through a backend that did not acquire it', async () => {
    const [backend, other] = [open(), open()];
    const id = createAcquisitionId('other');
    expect(await acquire(backend, id)).toBe('granted');
    expect(await release(other, id)).toBe('released');
    expect(await namesAt('other')).toEqual([]);
  });

  it('does not let a lock that somebody else has deleted be released by its next holder', async () => {
    const backend = open();
    const [deleted, next] = [createAcquisitionId('deleted'), createAcquisitionId('deleted')];
    expect(await acquire(backend, deleted)).toBe('granted');
    await onEtcd(server.url, [remove(etcdKeys.locksOf('deleted'))]);
    expect(await acquire(backend, next)).toBe('granted');
    expect(await release(backend, deleted)).toBe('gone');
    expect((await backend.inspect('deleted', TIMEOUT_MS))?.holder).toBe(next.holder);
  });
});
