import type { AcquireRequest } from '../../../core/backend.js';
import { systemClock } from '../../../core/clock.js';
import type { StoreTime } from '../../../core/requests/store-time.js';
import { type LockEntry, entriesOf, isNearLast } from '../keyspace.js';
import type { ZookeeperClient } from '../session/client.js';
import type { Session } from '../session/session.js';
import { create, getChildren, remove } from '../wire/operations.js';
import { CODE, hasNoEffect, unlessCode, usedUpError } from '../wire/zookeeper-errors.js';
import type { OwnLock, OwnLocks } from './own-locks.js';
import { readCommitted, readLock } from './queue-reader.js';
import { type LockValue, encodeValue } from './stored-lock.js';

/** An own entry whose node is known. */
export type CreatedLock = OwnLock & { readonly path: string };

/** An own entry, and all entries of its key, the oldest first. */
export interface Placed {
  readonly own: CreatedLock;
  readonly entries: readonly LockEntry[];
}

/** Creates the entry of an acquisition, or finds the one that an earlier request without a reply has created. */
export class EntryCreation {
  readonly #client: ZookeeperClient;
  readonly #ownLocks: OwnLocks;

  constructor(client: ZookeeperClient, ownLocks: OwnLocks) {
    this.#client = client;
    this.#ownLocks = ownLocks;
  }

  /**
   * Creates the entry, and reads all entries of the key in the same round trip.
   */
  async create(
    { key, holder, leaseMs }: AcquireRequest,
    { session, time, value }: Creating,
  ): Promise<Placed> {
    const { acl, keyspace } = this.#client;
    const bucket = keyspace.bucketOf(key);
    const node = { path: keyspace.lock(key, holder), data: encodeValue(value), acl };
    for (;;) {
      const lease = { isHeld: false, value, endsAtMs: systemClock.monotonicMs() + leaseMs };
      const doubt: OwnLock = { key, holder, session, path: undefined, czxid: 0n, ...lease };
      this.#ownLocks.set(doubt);
      const creation = session.send(create({ ...node, kind: 'ephemeralSequential' }));
      creation.catch((error: unknown) => {
        if (hasNoEffect(error) && this.#ownLocks.find(doubt) === doubt) this.#ownLocks.remove(doubt);
      });
      const children = unlessCode(session.send(getChildren(bucket)), CODE.noNode);
      const replies = Promise.all([unlessCode(creation, CODE.noNode), children]);
      const [created, found] = await session.await(replies, time);
      if (created) {
        const own = { ...doubt, path: created.path, czxid: created.stat.czxid };
        this.#ownLocks.set(own);
        await this.#refuseNearLast(own, time);
        return { own, entries: entriesOf(bucket, found?.names ?? [], key) };
      }
      await this.#client.createContainer(session, bucket, time);
    }
  }

  /** The entry of a request whose reply was lost. */
  async find(doubt: OwnLock, time: StoreTime): Promise<Placed | undefined> {
    const { session, key, holder } = doubt;
    const bucket = this.#client.keyspace.bucketOf(key);
    const entries = await readCommitted(session, { bucket, key }, time);
    const candidates = entries
      .filter((entry) => entry.holder === holder)
      .map((entry) => readLock(session, entry));
    const found = await session.await(Promise.all(candidates), time);
    // One of an earlier session ends by itself.
    const [first, ...others] = found.filter((lock) => lock?.owner === session.id);
    for (const other of others) if (other) session.send(remove(other.path)).catch(() => undefined);
    this.#ownLocks.remove(doubt);
    if (!first) return undefined;
    const own = { ...doubt, path: first.path, czxid: first.czxid, value: first.value };
    this.#ownLocks.set(own);
    await this.#refuseNearLast(own, time);
    return { own, entries };
  }

  /** An entry that is known, or that of a request whose reply was lost. */
  async findAgain(own: OwnLock, time: StoreTime): Promise<Placed | undefined> {
    if (!isCreated(own)) return this.find(own, time);
    await this.#refuseNearLast(own, time);
    return { own, entries: await this.#read(own, time) };
  }

  /** The entry with its node, if there is one. */
  async locate(own: OwnLock, time: StoreTime): Promise<CreatedLock | undefined> {
    return isCreated(own) ? own : (await this.find(own, time))?.own;
  }

  /** All entries of a key, the oldest first. A server that knows an entry also knows those before it. */
  async #read({ session, key }: OwnLock, time: StoreTime): Promise<readonly LockEntry[]> {
    const bucket = this.#client.keyspace.bucketOf(key);
    const read = unlessCode(session.send(getChildren(bucket)), CODE.noNode);
    return entriesOf(bucket, (await session.await(read, time))?.names ?? [], key);
  }

  /** Deletes an entry that must not be granted, and its bucket if that is empty: the next one has numbers from 0 on. */
  async #refuseNearLast(own: CreatedLock, time: StoreTime): Promise<void> {
    if (!isNearLast(own.path)) return;
    const { session, path } = own;
    const bucket = this.#client.keyspace.bucketOf(own.key);
    const removed = unlessCode(session.send(remove(path)), CODE.noNode);
    // Other entries may be left, and ZooKeeper removes an empty bucket by itself.
    const emptied = session.send(remove(bucket)).catch(() => undefined);
    await session.await(Promise.all([removed, emptied]), time);
    this.#ownLocks.remove(own);
    throw usedUpError(bucket);
  }
}

interface Creating {
  readonly session: Session;
  readonly time: StoreTime;
  readonly value: LockValue;
}

export const isCreated = (own: OwnLock): own is CreatedLock => own.path !== undefined;
