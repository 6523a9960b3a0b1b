import type { ReleaseRequest } from '../../../core/backend.js';
import type { ReleaseResult } from '../../../core/backend-results.js';
import type { Keyspace } from '../keyspace.js';
import type { EtcdConnection } from '../rpc/etcd-connection.js';
import { resultOfError } from '../rpc/etcd-errors.js';
import { type Deadline, deadlineIn } from '../../../core/requests/deadline.js';
import type { RequestOp, ResponseOp } from '../rpc/messages.js';
import {
  isUnchanged,
  keysOf,
  read,
  readOldest,
  remove,
  removedBy,
  transaction,
  wasCreatedAt,
} from '../rpc/operations.js';
import type { RunRecords } from '../ticks/run-records.js';
import { type EntryNames, entriesOf } from './entry-names.js';
import type { OwnEntries } from './own-entries.js';
import { type StoredLock, findLock, firstTokenOf, lastTokenOf, parseLock } from './stored-lock.js';

interface ReleasesParts {
  readonly connection: EtcdConnection;
  readonly keyspace: Keyspace;
  readonly names: EntryNames;
  readonly ownEntries: OwnEntries;
  readonly runRecords: RunRecords;
}

const MAX_PER_TRANSACTION = 100;

interface IndexedRelease {
  readonly index: number;
  readonly request: ReleaseRequest;
}

type Report = (index: number, result: ReleaseResult) => void;

/** Deletes locks and places in queues: only the entry that the holder has created, so a late release affects no other holder. */
export class Releases {
  readonly #parts: ReleasesParts;

  constructor(parts: ReleasesParts) {
    this.#parts = parts;
  }

  /** Never rejects. */
  async release(requests: readonly ReleaseRequest[], timeoutMs: number, report: Report): Promise<void> {
    const releases = requests.map((request, index) => ({ index, request }));
    const calls = releases
      .filter(({ request }) => request.hasEnded)
      .map((release) => this.#endRun(release, timeoutMs, report));
    const plain = releases.filter(({ request }) => !request.hasEnded);
    for (let start = 0; start < plain.length; start += MAX_PER_TRANSACTION)
      calls.push(this.#releaseAll(plain.slice(start, start + MAX_PER_TRANSACTION), timeoutMs, report));
    await Promise.all(calls);
  }

  /** Releases the key if the token belongs to its current grant. Returns whether it did. */
  async force(key: string, fencingToken: bigint, timeoutMs: number): Promise<boolean> {
    const { connection, keyspace } = this.#parts;
    const deadline = deadlineIn(timeoutMs);
    for (;;) {
      const search = { compare: [], success: [readOldest(keyspace.locksOf(key))] };
      const { responses } = await connection.call('KV.Txn', search, deadline.leftMs);
      const lock = parseLock(keyspace, keysOf(responses[0])[0]);
      if (!lock?.value.isHeld) return false;
      if (fencingToken < firstTokenOf(lock.createRevision) || fencingToken > lastTokenOf(lock)) return false;
      const request = {
        compare: [isUnchanged(lock.name, lock.modRevision)],
        success: [remove({ key: lock.name })],
      };
      const { succeeded } = await connection.call('KV.Txn', request, deadline.leftMs);
      // Otherwise it was renewed or released meanwhile.
      if (!succeeded) continue;
      await this.#recordRelease(lock, deadline);
      return true;
    }
  }

  async #releaseAll(releases: readonly IndexedRelease[], timeoutMs: number, report: Report): Promise<void> {
    const deadline = deadlineIn(timeoutMs);
    try {
      const success = releases.map(({ request }) => this.#encode(request));
      const { responses } = await this.#parts.connection.call(
        'KV.Txn',
        { compare: [], success },
        deadline.leftMs,
      );
      await Promise.all(
        releases.map(async ({ index, request }, position) => {
          const result = await this.#resultOf(request, responses[position], deadline).catch(resultOfError);
          report(index, result);
        }),
      );
    } catch (cause) {
      for (const { index } of releases) report(index, resultOfError(cause));
    }
  }

  /** Deletes the entry of the holder, or looks for it if this process does not know when it was created. */
  #encode({ key, holder }: ReleaseRequest): RequestOp {
    const { names, ownEntries } = this.#parts;
    const name = names.find(key, holder);
    const own = name && ownEntries.get(name);
    if (!own || own.isInDoubt) return read(entriesOf(this.#parts, key, holder));
    // When a release arrives late, a later entry may have the name.
    return transaction([wasCreatedAt(name, own.createRevision)], [remove({ key: name })]);
  }

  async #resultOf(
    request: ReleaseRequest,
    response: ResponseOp | undefined,
    deadline: Deadline,
  ): Promise<ReleaseResult> {
    const { keyspace } = this.#parts;
    const found = findLock(keyspace, keysOf(response), request.holder);
    const removed = found
      ? await this.#removeFound(found, deadline)
      : parseLock(keyspace, removedBy(response?.response_txn?.responses[0])[0]);
    this.#forget(request, removed !== undefined);
    if (!removed?.value.isHeld) return { kind: 'gone' };
    await this.#recordRelease(removed, deadline);
    return { kind: 'released' };
  }

  /** Returns what the entry was when it was deleted; `undefined` if it was gone before. */
  async #removeFound(found: StoredLock, deadline: Deadline): Promise<StoredLock | undefined> {
    const { connection, keyspace } = this.#parts;
    const range = { key: found.name };
    for (let lock: StoredLock | undefined = found; lock;) {
      const request = {
        compare: [isUnchanged(lock.name, lock.modRevision)],
        success: [remove(range)],
        failure: [read(range)],
      };
      const { succeeded, responses } = await connection.call('KV.Txn', request, deadline.leftMs);
      if (succeeded) return lock;
      // It was renewed or released meanwhile.
      lock = findLock(keyspace, keysOf(responses[0]), found.holder);
    }
    return undefined;
  }

  #forget({ key, holder }: ReleaseRequest, isRemoved: boolean): void {
    const { names, ownEntries } = this.#parts;
    const name = names.find(key, holder);
    if (!name) return;
    if (isRemoved) ownEntries.remove(name);
    else ownEntries.removeUnlessInDoubt(name);
    ownEntries.freeUnused(name);
  }

  /** The lock is released already, so a failure here must not hide that: the run then counts as alive for its lease. */
  async #recordRelease(removed: StoredLock, deadline: Deadline): Promise<void> {
    const { runRecords } = this.#parts;
    if (!removed.value.isRun) return;
    try {
      await runRecords.onReleased(removed, deadline.leftMs);
    } catch {
      // See above.
    }
  }

  async #endRun({ index, request }: IndexedRelease, timeoutMs: number, report: Report): Promise<void> {
    const deadline = deadlineIn(timeoutMs);
    try {
      const hasEnded = await this.#parts.runRecords.end(request, timeoutMs);
      if (!hasEnded) {
        await this.#releaseAll([{ index, request }], deadline.leftMs, report);
        return;
      }
      this.#forget(request, true);
      report(index, { kind: 'released' });
    } catch (cause) {
      report(index, resultOfError(cause));
    }
  }
}
