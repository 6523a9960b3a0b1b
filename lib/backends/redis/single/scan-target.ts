import type { ListedLock, LockRecord } from '../../../core/lock-record.js';
import { chunksOf } from '../chunks.js';
import type { ServerClient } from '../client-factory.js';
import type { ScanTarget } from '../key-scan.js';
import { keyOfLockKey, lockPatternOf } from './lock-keys.js';

type InspectAll = (keys: readonly string[]) => Promise<readonly (LockRecord | null)[]>;

/** So few that the server has only some 50 µs to do for them: acquisitions wait for it. */
const READ_AT_ONCE = 16;

/** The name of a server that is no Cluster. */
const SERVER = 'server';

/** The locks of one server, or of all nodes of a Cluster. */
export function scanTargetOf(client: ServerClient, keyPrefix: string, inspectAll: InspectAll): ScanTarget {
  const nodes = new Map(
    client.nodes?.('master').map((node) => [`${node.options.host}:${node.options.port}`, node]),
  );
  return {
    serverNames: () => (client.nodes ? [...nodes.keys()].sort() : [SERVER]),
    clientOf(serverName) {
      const node = client.nodes ? nodes.get(serverName) : client;
      if (node) return node;
      throw new Error(`the Cluster no longer has the node ${serverName}: list again from the first page`);
    },
    patternOf: (prefix) => lockPatternOf(prefix, keyPrefix),
    keyOf: (redisKey) => keyOfLockKey(redisKey, keyPrefix),
    async readHeld(keys) {
      const held: ListedLock[] = [];
      for (const some of chunksOf(keys, READ_AT_ONCE)) {
        const records = await inspectAll(some);
        for (const [index, key] of some.entries()) {
          const record = records[index];
          if (record) held.push({ key, ...record });
        }
      }
      return held;
    },
  };
}
