import { entriesOf } from '../../../../lib/backends/zookeeper/keyspace.js';
import { readLock } from '../../../../lib/backends/zookeeper/locks/queue-reader.js';
import { getChildren } from '../../../../lib/backends/zookeeper/wire/operations.js';
import { CODE, unlessCode } from '../../../../lib/backends/zookeeper/wire/zookeeper-errors.js';
import { startZookeeperEnsemble } from '../../../services/zookeeper-ensemble.js';
import { onZookeeper, removeAll, zookeeperKeys } from '../../../support/zookeeper.js';
import type { StoredEntry } from '../checkers/orphans.js';
import { CHAOS_SESSION_MS } from '../workers/worker-messages.js';
import type { StoreUnderTest } from './store-under-test.js';

const TIMEOUT_MS = 10_000;

/** An ensemble of three servers. A minority of them may be gone, and their clocks do not matter. */
export async function openZookeeperStore(): Promise<StoreUnderTest> {
  const ensemble = await startZookeeperEnsemble();
  const leader = async () => (await ensemble.leader()).service.url;
  return {
    name: 'zookeeper',
    sessionMs: CHAOS_SESSION_MS,
    servers: ensemble.members,
    storeAt: (ports) => ({
      zookeeper: {
        servers: ports.map((port) => `127.0.0.1:${port}`),
        sessionTimeoutMs: CHAOS_SESSION_MS,
      },
    }),
    storedEntries: async (namespace) => readEntries(await leader(), `${namespace}:`),
    deleteAll: async () => onZookeeper(await leader(), (client) => removeAll(client, zookeeperKeys.root)),
    // If all followers lose their leader and join it again while a transaction is under way, each may confirm that one first, where
    // the leader expects something else, and forgets it (ZOOKEEPER-4685). Then it still leads, and commits nothing any more.
    endStandstill: () => ensemble.endStandstill(),
    close: () => ensemble.close(),
  };
}

const readEntries = (server: string, prefix: string): Promise<StoredEntry[]> =>
  onZookeeper(server, async (client) => {
    const { names: buckets } = await client.read(getChildren(zookeeperKeys.locks), TIMEOUT_MS);
    const found: StoredEntry[] = [];
    for (const bucket of buckets.map((name) => `${zookeeperKeys.locks}/${name}`)) {
      const children = await unlessCode(client.read(getChildren(bucket), TIMEOUT_MS), CODE.noNode);
      for (const entry of entriesOf(bucket, children?.names ?? [])) {
        if (!entry.key.startsWith(prefix)) continue;
        const lock = await readLock(client.session, entry);
        if (lock)
          found.push({ key: entry.key.slice(prefix.length), what: lock.value.isHeld ? 'grant' : 'line' });
      }
    }
    return found;
  });
