import type { Deadline } from '../../../core/requests/deadline.js';
import { type LockEntry, entriesOf } from '../keyspace.js';
import type { ZookeeperClient } from '../session/client.js';
import type { Session } from '../session/session.js';
import { getChildren, getData } from '../wire/operations.js';
import { CODE, unlessCode } from '../wire/zookeeper-errors.js';
import { type StoredLock, storedLockOf } from './stored-lock.js';

/** The oldest entry of a key, which is its holder or the caller whose turn it is, and the number of all. */
export interface Queue {
  readonly oldest: StoredLock | undefined;
  readonly count: number;
}

/** Reads who holds a key, and who waits for it. */
export class QueueReader {
  readonly #client: ZookeeperClient;

  constructor(client: ZookeeperClient) {
    this.#client = client;
  }

  /** As it is after all that was written before. */
  async read(key: string, deadline: Deadline): Promise<Queue> {
    const bucket = this.#client.keyspace.bucketOf(key);
    for (;;) {
      const read = unlessCode(this.#client.read(getChildren(bucket), deadline.leftMs), CODE.noNode);
      const entries = entriesOf(bucket, (await read)?.names ?? [], key);
      const [first] = entries;
      if (!first) return { oldest: undefined, count: 0 };
      const { session } = this.#client;
      const oldest = await session.await(readLock(session, first), deadline);
      // Otherwise it has ended meanwhile.
      if (oldest) return { oldest, count: entries.length };
    }
  }
}

/** An entry with its data; `undefined` if it has ended. */
export async function readLock(session: Session, entry: LockEntry): Promise<StoredLock | undefined> {
  const node = await unlessCode(session.send(getData(entry.path)), CODE.noNode);
  return node && storedLockOf(entry, node);
}

/**
 * All entries of a key, the oldest first, also one whose request got no reply. Such a request may have been proposed over an earlier
 * connection, and not be committed on the server of this one yet. The heartbeat is a write of the same session, so ZooKeeper
 * commits it later, and the read follows it.
 */
export async function readCommitted(
  session: Session,
  { bucket, key }: { readonly bucket: string; readonly key: string },
  deadline: Deadline,
): Promise<LockEntry[]> {
  const heartbeat = session.heartbeat();
  const read = unlessCode(session.send(getChildren(bucket)), CODE.noNode);
  const [found] = await session.await(Promise.all([read, heartbeat]), deadline);
  return entriesOf(bucket, found?.names ?? [], key);
}

/** The entries of one holder of a key. */
export async function entriesOfHolder(
  client: ZookeeperClient,
  { key, holder }: { readonly key: string; readonly holder: string },
  deadline: Deadline,
): Promise<LockEntry[]> {
  const bucket = client.keyspace.bucketOf(key);
  const found = await unlessCode(client.read(getChildren(bucket), deadline.leftMs), CODE.noNode);
  return entriesOf(bucket, found?.names ?? [], key).filter((entry) => entry.holder === holder);
}
