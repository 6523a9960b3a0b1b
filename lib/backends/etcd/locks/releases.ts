import type { ReleaseRequest } from '../../../core/backend.js';
import type { ReleaseResult } from '../../../core/backend-results.js';
import type { Keyspace } from '../keyspace.js';
import type { EtcdConnection } from '../rpc/etcd-connection.js';
import { resultOfError } from '../rpc/etcd-errors.js';
import { type Deadline, deadlineIn } from '../../../core/requests/deadline.js';
import { isUnchanged, keysOf, readOldest, remove, removedBy } from '../rpc/operations.js';
import type { RunRecords } from '../ticks/run-records.js';
import type { OwnEntries } from './own-entries.js';
import { type StoredLock, firstTokenOf, lastTokenOf, parseLock } from './stored-lock.js';

interface ReleasesParts {
  readonly connection: EtcdConnection;
  readonly keyspace: Keyspace;
  readonly ownEntries: OwnEntries;
  readonly runRecords: RunRecords;
}

const MAX_PER_TRANSACTION = 100;

interface IndexedRelease {
  readonly index: number;
  readonly request: ReleaseRequest;
}

type Report = (index: number, result: ReleaseResult) => void;

/** Deletes locks and places in queues. Their names contain the holder, so a late release affects no other holder. */
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
      .map(({ index, request }) => this.#endRun(request, timeoutMs).then((result) => report(index, result)));
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
    const { connection, keyspace } = this.#parts;
    const deadline = deadlineIn(timeoutMs);
    try {
      const names = releases.map(({ request: { key, holder } }) => keyspace.lock(key, holder));
      const success = names.map((name) => remove({ key: name }));
      const { responses } = await connection.call('KV.Txn', { compare: [], success }, deadline.leftMs);
      await Promise.all(
        releases.map(async ({ index }, position) => {
          const removed = parseLock(keyspace, removedBy(responses[position])[0]);
          this.#forget(names[position] as Buffer, removed);
          if (removed?.value.isHeld) await this.#recordRelease(removed, deadline);
          report(index, { kind: removed?.value.isHeld ? 'released' : 'gone' });
        }),
      );
    } catch (cause) {
      for (const { index } of releases) report(index, resultOfError(cause));
    }
  }

  #forget(name: Buffer, removed: StoredLock | undefined): void {
    if (removed) this.#parts.ownEntries.remove(name);
    else this.#parts.ownEntries.removeUnlessInDoubt(name);
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

  async #endRun(request: ReleaseRequest, timeoutMs: number): Promise<ReleaseResult> {
    const { keyspace, ownEntries, runRecords } = this.#parts;
    try {
      const hasEnded = await runRecords.end(request, timeoutMs);
      ownEntries.remove(keyspace.lock(request.key, request.holder));
      return { kind: hasEnded ? 'released' : 'gone' };
    } catch (cause) {
      return resultOfError(cause);
    }
  }
}
