import { Keyspace } from '../../lib/backends/zookeeper/keyspace.js';
import { ZookeeperClient } from '../../lib/backends/zookeeper/session/client.js';
import { Hosts } from '../../lib/backends/zookeeper/session/hosts.js';
import { getChildren, remove } from '../../lib/backends/zookeeper/wire/operations.js';
import { CODE, unlessCode } from '../../lib/backends/zookeeper/wire/zookeeper-errors.js';
import { DEFAULT_PATH, resolveZookeeperOptions } from '../../lib/backends/zookeeper/zookeeper-options.js';
import { TICK_TIME_MS } from '../services/zookeeper.js';

export const zookeeperKeys = new Keyspace(DEFAULT_PATH);
/** The laws ask for leases of a minute. */
export const SESSION_TIMEOUT_MS = 90_000;
const TIMEOUT_MS = 10_000;

/** A client of the servers of the tests, without a backend. */
export function openZookeeperClient(servers: string, sessionTimeoutMs = SESSION_TIMEOUT_MS): ZookeeperClient {
  const options = { servers, sessionTimeoutMs, tickTimeMs: TICK_TIME_MS };
  const { hosts, tls, digest, ...resolved } = resolveZookeeperOptions(options);
  return new ZookeeperClient({
    ...{ ...resolved, keyspace: zookeeperKeys, hosts: new Hosts(hosts), settings: { tls, digest } },
  });
}

/** Runs something on ZooKeeper directly, in a session of its own. */
export async function onZookeeper<T>(
  servers: string,
  run: (client: ZookeeperClient) => Promise<T>,
): Promise<T> {
  const client = openZookeeperClient(servers);
  try {
    return await run(client);
  } finally {
    await client.close(true);
  }
}

/** Deletes a node and all below it. */
export async function removeAll(client: ZookeeperClient, path: string): Promise<void> {
  const children = await unlessCode(client.read(getChildren(path), TIMEOUT_MS), CODE.noNode);
  for (const name of children?.names ?? []) await removeAll(client, `${path}/${name}`);
  const removed = client.call(remove(path), TIMEOUT_MS).then(() => true);
  // Others may create nodes meanwhile.
  const isGone = await unlessCode(
    unlessCode(removed, CODE.noNode).then(() => true),
    CODE.notEmpty,
  );
  if (!isGone) await removeAll(client, path);
}

/** Deletes everything that ZooKeeper knows about the key, as nobody should. */
export const forgetZookeeperKey = (servers: string, key: string): Promise<void> =>
  onZookeeper(servers, async (client) => {
    const bucket = zookeeperKeys.bucketOf(key);
    const found = await unlessCode(client.read(getChildren(bucket), TIMEOUT_MS), CODE.noNode);
    const start = zookeeperKeys.lock(key, '').slice(bucket.length + 1, -1);
    for (const name of found?.names ?? [])
      if (name.startsWith(start)) await removeAll(client, `${bucket}/${name}`);
    await removeAll(client, zookeeperKeys.tick(key));
    await removeAll(client, zookeeperKeys.historyOf(key));
  });
