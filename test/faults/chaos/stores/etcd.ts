import { DEFAULT_KEY_PREFIX } from '../../../../lib/backends/etcd/etcd-options.js';
import { parseLock } from '../../../../lib/backends/etcd/locks/stored-lock.js';
import { keysOf, read, remove } from '../../../../lib/backends/etcd/rpc/operations.js';
import { startEtcdCluster } from '../../../services/etcd-cluster.js';
import { etcdKeys, onEtcd } from '../../../support/etcd.js';
import type { StoredEntry } from '../checkers/orphans.js';
import type { StoreUnderTest } from './store-under-test.js';

const EVERYTHING = { key: Buffer.from(DEFAULT_KEY_PREFIX), range_end: Buffer.of(0xff) };

/** A cluster of three members. A minority of them may be gone, and their clocks do not matter. */
export async function openEtcdStore(): Promise<StoreUnderTest> {
  const cluster = await startEtcdCluster();
  const url = async () => (await cluster.leader()).service.url;
  return {
    name: 'etcd',
    // A lease of 3 s is one of 4 s in etcd, and a new leader starts every lease again.
    sessionMs: 8_000,
    // A leader that stands still for longer than the rest of a lease ends it afterwards (guarantees.md). Leases last 3 s or more.
    longestFreezeMs: 1_500,
    keptMs: (leaseMs) => 2 * Math.max(leaseMs * 1.25, leaseMs + 1_000),
    servers: cluster.members,
    storeAt: (ports) => ({ etcd: ports.map((port) => `127.0.0.1:${port}`) }),
    storedEntries: async (namespace) => {
      const { responses } = await onEtcd(await url(), [read(etcdKeys.locksFrom(`${namespace}:`, undefined))]);
      return keysOf(responses[0]).map((entry): StoredEntry => {
        const { key, value } = parseLock(etcdKeys, entry);
        return { key: key.slice(namespace.length + 1), what: value.isHeld ? 'grant' : 'line' };
      });
    },
    deleteAll: async () => onEtcd(await url(), [remove(EVERYTHING)]),
    close: () => cluster.close(),
  };
}
