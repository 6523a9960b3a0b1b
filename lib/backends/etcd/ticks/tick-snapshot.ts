import type { TickRecord } from '../../../core/tick-record.js';
import type { Keyspace } from '../keyspace.js';
import type { StoredLock } from '../locks/stored-lock.js';
import { parseLock } from '../locks/stored-lock.js';
import type { EtcdConnection } from '../rpc/etcd-connection.js';
import { keysOf, read, readOldest } from '../rpc/operations.js';
import { decodeJson } from '../stored-json.js';

/** The record of a key, its lock, and the revision of the record. */
export interface TickSnapshot {
  readonly record: TickRecord | undefined;
  /** `'0'` if there is no record. */
  readonly revision: string;
  /** The holder of the key, or the caller whose turn it is. */
  readonly oldest: StoredLock | undefined;
}

/** The record has no lease, so it stays. */
export async function readSnapshot(
  connection: EtcdConnection,
  keyspace: Keyspace,
  key: string,
  timeoutMs: number,
): Promise<TickSnapshot> {
  const success = [read({ key: keyspace.tick(key) }), readOldest(keyspace.locksOf(key))];
  const { responses } = await connection.call('KV.Txn', { compare: [], success }, timeoutMs);
  const entry = keysOf(responses[0])[0];
  return {
    record: entry && (decodeJson(entry) as TickRecord),
    revision: entry?.mod_revision ?? '0',
    oldest: parseLock(keyspace, keysOf(responses[1])[0]),
  };
}
