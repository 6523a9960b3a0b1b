import { systemClock } from '../../../core/clock.js';
import type { ClaimedTick, TickState } from '../../../core/tick.js';
import type { Keyspace } from '../keyspace.js';
import type { StoredLock } from '../locks/stored-lock.js';
import { parseLock } from '../locks/stored-lock.js';
import type { EtcdConnection } from '../rpc/etcd-connection.js';
import { keysOf, read, readOldest } from '../rpc/operations.js';

/** What etcd keeps about the ticks of a key, as JSON. It has no lease. Each change is a compare-and-set of its revision. */
export interface TickRecord extends ClaimedTick {
  /** The holder of the newest run, until it has ended. */
  readonly holder?: string;
  /** Until then the newest run was alive, by the clock of its process. */
  readonly aliveUntilMs: number;
  readonly isPaused?: true;
}

/** The record of a key, its lock, and the revision of the record. */
export interface TickSnapshot {
  readonly record: TickRecord | undefined;
  /** `'0'` if there is no record. */
  readonly revision: string;
  /** The holder of the key, or the caller whose turn it is. */
  readonly oldest: StoredLock | undefined;
}

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
    record: entry && (JSON.parse(entry.value.toString()) as TickRecord),
    revision: entry?.mod_revision ?? '0',
    oldest: parseLock(keyspace, keysOf(responses[1])[0]),
  };
}

/** etcd has no clock that can be read, so this is the time of this process. The rest of a lease is at most its length. */
export function tickStateOf({ record, oldest }: TickSnapshot): TickState {
  const nowMs = systemClock.wallMs();
  const heldForMs = oldest?.value.isHeld ? oldest.value.leaseMs : 0;
  return {
    nowMs,
    heldForMs,
    claimed: record && { tickMs: record.tickMs, attempt: record.attempt },
    aliveUntilMs: heldForMs > 0 ? nowMs + heldForMs : (record?.aliveUntilMs ?? 0),
    ...(record?.isPaused && { isPaused: true }),
  };
}

export const encodeRecord = (record: TickRecord): Buffer => Buffer.from(JSON.stringify(record));
