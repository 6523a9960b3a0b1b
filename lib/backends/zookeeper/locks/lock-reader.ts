import { systemClock } from '../../../core/clock.js';
import { checkKeyCursor } from '../../../core/list-options.js';
import type { ListRequest, ListedLock, LockPage, LockRecord } from '../../../core/lock-record.js';
import { type Deadline, deadlineIn } from '../../../core/requests/deadline.js';
import { type LockEntry, bucketNameOf, entriesOf } from '../keyspace.js';
import type { ZookeeperClient } from '../session/client.js';
import { getChildren } from '../wire/operations.js';
import { CODE, unlessCode } from '../wire/zookeeper-errors.js';
import type { OwnEntries } from './own-entries.js';
import { type QueueReader, readLock } from './queue-reader.js';
import { type StoredLock, firstTokenOf } from './stored-lock.js';

/** Buckets in one step of a list. */
const STEP = 64;

/** The entries of one key, the oldest first. */
type KeyEntries = readonly [LockEntry, ...LockEntry[]];

/** Reads held locks, for people and for the holder that asks how long its lease lasts. */
export class LockReader {
  readonly #client: ZookeeperClient;
  readonly #ownEntries: OwnEntries;
  readonly #queues: QueueReader;

  constructor(client: ZookeeperClient, ownEntries: OwnEntries, queues: QueueReader) {
    this.#client = client;
    this.#ownEntries = ownEntries;
    this.#queues = queues;
  }

  async inspect(key: string, timeoutMs: number): Promise<LockRecord | null> {
    const { oldest, count } = await this.#queues.read(key, deadlineIn(timeoutMs));
    return oldest?.value.isHeld ? this.#recordOf(oldest, count) : null;
  }

  /** Bucket by bucket, and in each bucket in the order of the keys. */
  async list(request: ListRequest, timeoutMs: number): Promise<LockPage> {
    checkKeyCursor(request);
    const { prefix, cursor, limit } = request;
    const deadline = deadlineIn(timeoutMs);
    const buckets = await this.#readBuckets(cursor, deadline);
    const locks: ListedLock[] = [];
    for (let start = 0; start < buckets.length && locks.length <= limit; start += STEP) {
      const keys = await this.#readKeys(buckets.slice(start, start + STEP), deadline);
      const wanted = keys.filter(([{ key }]) => key.startsWith(prefix) && isAfter(key, cursor));
      for (let from = 0; from < wanted.length && locks.length <= limit; from += limit)
        locks.push(...(await this.#readHolders(wanted.slice(from, from + limit), deadline)));
    }
    const page = locks.slice(0, limit);
    const lastKey = page.at(-1)?.key;
    return { locks: page, ...(locks.length > limit && lastKey !== undefined && { cursor: lastKey }) };
  }

  /** The names of the buckets from that of the cursor on. */
  async #readBuckets(cursor: string | undefined, deadline: Deadline): Promise<string[]> {
    const { locks } = this.#client.keyspace;
    const { names } = await this.#client.read(getChildren(locks), deadline.leftMs);
    const first = cursor === undefined ? '' : bucketNameOf(cursor);
    return names.filter((name) => name >= first).sort();
  }

  /** The entries of all keys of these buckets, in the order of the list. */
  async #readKeys(buckets: readonly string[], deadline: Deadline): Promise<KeyEntries[]> {
    const { locks } = this.#client.keyspace;
    const paths = buckets.map((name) => `${locks}/${name}`);
    const replies = await this.#client.readAll(
      paths.map((path) => getChildren(path)),
      deadline.leftMs,
    );
    const keys: KeyEntries[] = [];
    for (const [index, reply] of replies.entries()) {
      const found = await unlessCode(reply, CODE.noNode);
      const byKey = new Map<string, [LockEntry, ...LockEntry[]]>();
      for (const entry of entriesOf(paths[index] as string, found?.names ?? [])) {
        const present = byKey.get(entry.key);
        if (present) present.push(entry);
        else byKey.set(entry.key, [entry]);
      }
      keys.push(...[...byKey.values()].sort(([one], [other]) => (one.key < other.key ? -1 : 1)));
    }
    return keys;
  }

  async #readHolders(keys: readonly KeyEntries[], deadline: Deadline): Promise<ListedLock[]> {
    const { session } = this.#client;
    const replies = Promise.all(keys.map(([oldest]) => readLock(session, oldest)));
    const found = await session.await(replies, deadline);
    return found.flatMap((lock, index) =>
      lock?.value.isHeld ? [{ key: lock.key, ...this.#recordOf(lock, keys[index]?.length ?? 1) }] : [],
    );
  }

  /** Never says more than what is left: a holder may rely on it. */
  #recordOf(lock: StoredLock, count: number): LockRecord {
    const { holder, value, czxid, path } = lock;
    const { instance, sinceMs, leaseMs } = value;
    const own = this.#ownEntries.find(lock);
    const ofOwnMs = own?.path === path ? own.endsAtMs - systemClock.monotonicMs() : Infinity;
    const remainingMs = Math.max(Math.min(leaseMs, ofOwnMs), 1);
    const isUncertain = own !== undefined && !own.session.lasts(remainingMs);
    return {
      ...{ holder, instance, fencingToken: firstTokenOf(czxid), sinceMs, remainingMs, queued: count - 1 },
      ...(isUncertain && { isUncertain }),
    };
  }
}

/** Whether a key comes after the cursor in the order of a list. */
function isAfter(key: string, cursor: string | undefined): boolean {
  if (cursor === undefined) return true;
  const [bucket, cursorBucket] = [bucketNameOf(key), bucketNameOf(cursor)];
  return bucket === cursorBucket ? key > cursor : bucket > cursorBucket;
}
