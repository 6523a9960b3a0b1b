import { ChannelCredentials } from '@grpc/grpc-js';
import { DEFAULT_KEY_PREFIX } from '../../lib/backends/etcd/etcd-options.js';
import { Keyspace } from '../../lib/backends/etcd/keyspace.js';
import { EtcdConnection } from '../../lib/backends/etcd/rpc/etcd-connection.js';
import type { RequestOp, TxnResponse } from '../../lib/backends/etcd/rpc/messages.js';
import { remove } from '../../lib/backends/etcd/rpc/operations.js';

export const hostOf = (url: string): string => url.replace(/^\w+:\/\//, '');

export const etcdKeys = new Keyspace(DEFAULT_KEY_PREFIX);

/** Runs operations on etcd directly, in one transaction. */
export async function onEtcd(url: string, operations: readonly RequestOp[]): Promise<TxnResponse> {
  const connection = new EtcdConnection({
    ...{ hosts: [hostOf(url)], credentials: ChannelCredentials.createInsecure() },
    ...{ auth: undefined, keyPrefix: DEFAULT_KEY_PREFIX },
  });
  try {
    return await connection.call('KV.Txn', { compare: [], success: operations }, 10_000);
  } finally {
    connection.close();
  }
}

/** Deletes everything that etcd knows about the key, as nobody should. */
export async function forgetEtcdKey(url: string, key: string): Promise<void> {
  const ranges = [etcdKeys.locksOf(key), etcdKeys.historyOf(key), { key: etcdKeys.tick(key) }];
  await onEtcd(url, ranges.map(remove));
}
