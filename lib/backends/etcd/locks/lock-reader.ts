import { systemClock } from '../../../core/clock.js';
import { checkKeyCursor } from '../../../core/list-options.js';
import type { ListRequest, ListedLock, LockPage, LockRecord } from '../../../core/lock-record.js';
import type { Keyspace } from '../keyspace.js';
import type { EtcdConnection } from '../rpc/etcd-connection.js';
import { count, keysOf, readOldest } from '../rpc/operations.js';
import { type Deadline, deadlineIn } from '../../../core/requests/deadline.js';
import type { OwnEntries } from './own-entries.js';
import { type StoredLock, firstTokenOf, parseLock } from './stored-lock.js';

/** Entries in one step of a list. Those of waiters are among them. */
const STEP = 500;

/** Reads held locks, for people and for the holder that asks how long its lease lasts. */
export class LockReader {
  readonly #connection: EtcdConnection;
  readonly #keyspace: Keyspace;
  readonly #ownEntries: OwnEntries;

  constructor(connection: EtcdConnection, keyspace: Keyspace, ownEntries: OwnEntries) {
    this.#connection = connection;
    this.#keyspace = keyspace;
    this.#ownEntries = ownEntries;
  }

  /** Returns the holder of each key, in one transaction for many keys. */
  async inspectAll(keys: readonly string[], timeoutMs: number): Promise<readonly (LockRecord | null)[]> {
    const deadline = deadlineIn(timeoutMs);
    const success = keys.flatMap((key) => {
      const all = this.#keyspace.locksOf(key);
      return [readOldest(all), count(all)];
    });
    const { responses } = await this.#connection.call('KV.Txn', { compare: [], success }, deadline.leftMs);
    const locks = keys.map((_, index) => parseLock(this.#keyspace, keysOf(responses[2 * index])[0]));
    const held = locks.filter((lock) => lock?.value.isHeld) as readonly StoredLock[];
    const leases = await this.#readLeases(new Set(held.map(({ leaseId }) => leaseId)), deadline);
    return locks.map((lock, index) => {
      const queued = Number(responses[2 * index + 1]?.response_range?.count ?? 1) - 1;
      return lock?.value.isHeld ? this.#recordOf(lock, { leases, queued }) : null;
    });
  }

  async list(request: ListRequest, timeoutMs: number): Promise<LockPage> {
    checkKeyCursor(request);
    const { prefix, cursor, limit } = request;
    const deadline = deadlineIn(timeoutMs);
    let range = this.#keyspace.locksFrom(prefix, cursor);
    const found: StoredLock[] = [];
    const entriesOf = new Map<string, number>();
    let isLast = false;
    while (!isLast && found.length <= limit) {
      const { kvs, more } = await this.#connection.call(
        'KV.Range',
        { ...range, limit: STEP },
        deadline.leftMs,
      );
      for (const entry of kvs) {
        const lock = parseLock(this.#keyspace, entry);
        entriesOf.set(lock.key, (entriesOf.get(lock.key) ?? 0) + 1);
        if (lock.value.isHeld) found.push(lock);
      }
      const last = kvs.at(-1);
      if (last) range = { ...range, key: Buffer.concat([last.key, Buffer.of(0)]) };
      isLast = !more;
    }
    const page = found.slice(0, limit);
    const leases = await this.#readLeases(new Set(page.map(({ leaseId }) => leaseId)), deadline);
    const locks = page.flatMap((lock): ListedLock[] => {
      const queued = (entriesOf.get(lock.key) ?? 1) - 1;
      const record = this.#recordOf(lock, { leases, queued });
      return record ? [{ key: lock.key, ...record }] : [];
    });
    const lastKey = page.at(-1)?.key;
    return { locks, ...(found.length > limit && lastKey !== undefined && { cursor: lastKey }) };
  }

  /** The rest of each lease in ms, rounded down to seconds. */
  async #readLeases(ids: ReadonlySet<string>, deadline: Deadline): Promise<ReadonlyMap<string, number>> {
    const entries = [...ids].map(async (ID) => {
      const { TTL } = await this.#connection.call('Lease.LeaseTimeToLive', { ID }, deadline.leftMs);
      return [ID, Number(TTL) * 1_000] as const;
    });
    return new Map(await Promise.all(entries));
  }

  /** Never says more than what is left: a holder may rely on it. */
  #recordOf(lock: StoredLock, { leases, queued }: Surroundings): LockRecord | null {
    const { holder, value, createRevision, leaseId, name } = lock;
    const { instance, sinceMs, leaseMs } = value;
    const ofLeaseMs = leases.get(leaseId) ?? 0;
    if (ofLeaseMs < 0) return null;
    const own = this.#ownEntries.get(name);
    const ofOwnMs = own ? own.endsAtMs - systemClock.monotonicMs() : Infinity;
    const isEnding = this.#ownEntries.isEnding(name);
    const remainingMs = isEnding ? 1 : Math.max(Math.min(ofLeaseMs, leaseMs, ofOwnMs), 1);
    return { holder, instance, fencingToken: firstTokenOf(createRevision), sinceMs, remainingMs, queued };
  }
}

interface Surroundings {
  /** The rest of each lease. */
  readonly leases: ReadonlyMap<string, number>;
  /** How many others wait for the key. */
  readonly queued: number;
}
