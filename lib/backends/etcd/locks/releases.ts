import type { ReleaseRequest, ReleaseResult } from '../../../core/backend.js';
import type { Keyspace } from '../keyspace.js';
import type { EtcdConnection } from '../rpc/etcd-connection.js';
import { resultOfError } from '../rpc/etcd-errors.js';
import { isUnchanged, keysOf, readOldest, remove, removedBy } from '../rpc/operations.js';
import type { RunRecords } from '../ticks/run-records.js';
import type { OwnLocks } from './own-locks.js';
import { type StoredLock, firstTokenOf, lastTokenOf, parseLock } from './stored-lock.js';

interface ReleasesParts {
  readonly connection: EtcdConnection;
  readonly keyspace: Keyspace;
  readonly ownLocks: OwnLocks;
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
    const { connection, keyspace, runRecords } = this.#parts;
    const found = await connection.call(
      ...(['KV.Txn', { compare: [], success: [readOldest(keyspace.locksOf(key))] }, timeoutMs] as const),
    );
    const lock = parseLock(keyspace, keysOf(found.responses[0])[0]);
    if (!lock?.value.isHeld) return false;
    if (fencingToken < firstTokenOf(lock.createRevision) || fencingToken > lastTokenOf(lock)) return false;
    const request = {
      compare: [isUnchanged(lock.name, lock.modRevision)],
      success: [remove({ key: lock.name })],
    };
    const { succeeded } = await connection.call('KV.Txn', request, timeoutMs);
    // It was renewed or released meanwhile.
    if (!succeeded) return this.force(key, fencingToken, timeoutMs);
    if (lock.value.isRun) await runRecords.onReleased(lock, timeoutMs);
    return true;
  }

  async #releaseAll(releases: readonly IndexedRelease[], timeoutMs: number, report: Report): Promise<void> {
    const { connection, keyspace, ownLocks } = this.#parts;
    try {
      const names = releases.map(({ request: { key, holder } }) => keyspace.lock(key, holder));
      const success = names.map((name) => remove({ key: name }));
      const { responses } = await connection.call('KV.Txn', { compare: [], success }, timeoutMs);
      for (const name of names) ownLocks.remove(name);
      await Promise.all(
        releases.map(async ({ index }, position) => {
          const removed = parseLock(keyspace, removedBy(responses[position])[0]);
          report(index, await this.#resultOf(removed, timeoutMs));
        }),
      );
    } catch (cause) {
      for (const { index } of releases) report(index, resultOfError(cause));
    }
  }

  async #resultOf(removed: StoredLock | undefined, timeoutMs: number): Promise<ReleaseResult> {
    if (!removed?.value.isHeld) return { kind: 'gone' };
    // Without this, the run counts as alive until its lease would have ended.
    if (removed.value.isRun)
      await this.#parts.runRecords.onReleased(removed, timeoutMs).catch(() => undefined);
    return { kind: 'released' };
  }

  async #endRun(request: ReleaseRequest, timeoutMs: number): Promise<ReleaseResult> {
    const { keyspace, ownLocks, runRecords } = this.#parts;
    try {
      const hasEnded = await runRecords.end(request, timeoutMs);
      ownLocks.remove(keyspace.lock(request.key, request.holder));
      return { kind: hasEnded ? 'released' : 'gone' };
    } catch (cause) {
      return resultOfError(cause);
    }
  }
}
