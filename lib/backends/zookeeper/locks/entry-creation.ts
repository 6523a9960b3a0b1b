import type { AcquireRequest } from '../../../core/backend.js';
import { systemClock } from '../../../core/clock.js';
import type { Deadline } from '../../../core/requests/deadline.js';
import { type LockEntry, entriesOf, isNearLast } from '../keyspace.js';
import type { ZookeeperClient } from '../session/client.js';
import type { Session } from '../session/session.js';
import { create, getChildren, remove } from '../wire/operations.js';
import { CODE, hasNoEffect, unlessCode, usedUpError } from '../wire/zookeeper-errors.js';
import type { OwnEntry, OwnEntries } from './own-entries.js';
import { readCommitted, readLock } from './queue-reader.js';
import { type LockValue, encodeValue } from './stored-lock.js';

/** An own entry whose node is known. */
export type CreatedLock = OwnEntry & { readonly path: string };

/** An own entry, and all entries of its key, the oldest first. */
export interface Placed {
  readonly own: CreatedLock;
  readonly entries: readonly LockEntry[];
}

/** Creates the entry of an acquisition, or finds the one that an earlier request without a reply has created. */
export class EntryCreation {
  readonly #client: ZookeeperClient;
  readonly #ownEntries: OwnEntries;

  constructor(client: ZookeeperClient, ownEntries: OwnEntries) {
    this.#client = client;
    this.#ownEntries = ownEntries;
  }

  /**
   * Creates the entry, and reads all entries of the key in the same round trip.
   */
  async create(
    { key, holder, leaseMs }: AcquireRequest,
    { session, deadline, value }: Creating,
  ): Promise<Placed> {
    const { acl, keyspace } = this.#client;
    const bucket = keyspace.bucketOf(key);
    const node = { path: keyspace.lock(key, holder), data: encodeValue(value), acl };
    for (;;) {
      const lease = { isHeld: false, value, endsAtMs: systemClock.monotonicMs() + leaseMs };
      const doubt: OwnEntry = { key, holder, session, path: undefined, czxid: 0n, ...lease };
      this.#ownEntries.set(doubt);
      const creation = session.send(create({ ...node, kind: 'ephemeralSequential' }));
      creation.catch((error: unknown) => {
        if (hasNoEffect(error) && this.#ownEntries.find(doubt) === doubt) this.#ownEntries.remove(doubt);
      });
      const children = unlessCode(session.send(getChildren(bucket)), CODE.noNode);
      const replies = Promise.all([unlessCode(creation, CODE.noNode), children]);
      const [created, found] = await session.await(replies, deadline);
      if (created) {
        const own = { ...doubt, path: created.path, czxid: created.stat.czxid };
        this.#ownEntries.set(own);
        await this.#refuseNearLast(own, deadline);
        return { own, entries: entriesOf(bucket, found?.names ?? [], key) };
      }
      await this.#client.createContainer(session, bucket, deadline);
    }
  }

  /** The entry of a request whose reply was lost. */
  async find(doubt: OwnEntry, deadline: Deadline): Promise<Placed | undefined> {
    const { session, key, holder } = doubt;
    const bucket = this.#client.keyspace.bucketOf(key);
    const entries = await readCommitted(session, { bucket, key }, deadline);
    const candidates = entries
      .filter((entry) => entry.holder === holder)
      .map((entry) => readLock(session, entry));
    const found = await session.await(Promise.all(candidates), deadline);
    // One of an earlier session ends by itself.
    const [first, ...others] = found.filter((lock) => lock?.owner === session.id);
    for (const other of others) if (other) session.send(remove(other.path)).catch(() => undefined);
    this.#ownEntries.remove(doubt);
    if (!first) return undefined;
    const own = { ...doubt, path: first.path, czxid: first.czxid, value: first.value };
    this.#ownEntries.set(own);
    await this.#refuseNearLast(own, deadline);
    return { own, entries };
  }

  /** An entry that is known, or that of a request whose reply was lost. */
  async findAgain(own: OwnEntry, deadline: Deadline): Promise<Placed | undefined> {
    if (!isCreated(own)) return this.find(own, deadline);
    await this.#refuseNearLast(own, deadline);
    return { own, entries: await this.#read(own, deadline) };
  }

  /** The entry with its node, if there is one. */
  async locate(own: OwnEntry, deadline: Deadline): Promise<CreatedLock | undefined> {
    return isCreated(own) ? own : (await this.find(own, deadline))?.own;
  }

  /** All entries of a key, the oldest first. A server that knows an entry also knows those before it. */
  async #read({ session, key }: OwnEntry, deadline: Deadline): Promise<readonly LockEntry[]> {
    const bucket = this.#client.keyspace.bucketOf(key);
    const read = unlessCode(session.send(getChildren(bucket)), CODE.noNode);
    return entriesOf(bucket, (await session.await(read, deadline))?.names ?? [], key);
  }

  /** Deletes an entry that must not be granted, and its bucket if that is empty: the next one has numbers from 0 on. */
  async #refuseNearLast(own: CreatedLock, deadline: Deadline): Promise<void> {
    if (!isNearLast(own.path)) return;
    const { session, path } = own;
    const bucket = this.#client.keyspace.bucketOf(own.key);
    const removed = unlessCode(session.send(remove(path)), CODE.noNode);
    // Other entries may be left, and ZooKeeper removes an empty bucket by itself.
    const emptied = session.send(remove(bucket)).catch(() => undefined);
    await session.await(Promise.all([removed, emptied]), deadline);
    this.#ownEntries.remove(own);
    throw usedUpError(bucket);
  }
}

interface Creating {
  readonly session: Session;
  readonly deadline: Deadline;
  readonly value: LockValue;
}

export const isCreated = (own: OwnEntry): own is CreatedLock => own.path !== undefined;
