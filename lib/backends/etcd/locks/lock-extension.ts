import { systemClock } from '../../../core/clock.js';
import type { Keyspace } from '../keyspace.js';
import { hasNoEffect } from '../rpc/etcd-errors.js';
import { isUnchanged, put, transaction } from '../rpc/operations.js';
import { deadlineIn } from '../../../core/requests/deadline.js';
import type { Sessions } from '../session/sessions.js';
import type { OwnEntry, OwnEntries } from './own-entries.js';
import { type StoredLock, encodeValue, valueForRewrite } from './stored-lock.js';

interface LockExtensionParts {
  readonly keyspace: Keyspace;
  readonly sessions: Sessions;
  readonly ownEntries: OwnEntries;
}

/** Moves a held lock to a session whose lease is long enough. */
export class LockExtension {
  readonly #parts: LockExtensionParts;

  constructor(parts: LockExtensionParts) {
    this.#parts = parts;
  }

  /** Returns whether the lock is held for this long now. Not if it has changed since it was read. */
  async extend(lock: StoredLock, leaseMs: number, timeoutMs: number): Promise<boolean> {
    const { ownEntries } = this.#parts;
    const own = ownEntries.get(lock.name);
    if (ownEntries.isEnding(lock.name)) return false;
    if (own?.session.leaseId === lock.leaseId && lock.value.leaseMs >= leaseMs) {
      // No late transaction can end a held lock, so nothing has to be written.
      await own.session.confirm(leaseMs, timeoutMs);
      return ownEntries.extend({ ...own, isHeld: true }, leaseMs);
    }
    return ownEntries.whileInFlight([lock.name], () => this.#move(lock, { leaseMs, timeoutMs, own }));
  }

  async #move(lock: StoredLock, { leaseMs, timeoutMs, own }: Move): Promise<boolean> {
    const { sessions, ownEntries } = this.#parts;
    const { key, name, createRevision } = lock;
    const deadline = deadlineIn(timeoutMs);
    const longestMs = Math.max(leaseMs, lock.value.leaseMs);
    const session = sessions.get(longestMs);
    await session.prepare(longestMs, deadline.leftMs);
    const value = encodeValue(valueForRewrite(lock, { leaseMs: longestMs }));
    const move = transaction([isUnchanged(name, lock.modRevision)], [put(name, value, session.leaseId)]);
    const { responses } = await session.transact([move], deadline.leftMs).catch((cause: unknown) => {
      if (!hasNoEffect(cause)) ownEntries.markUnknown({ name, key, session, leaseMs: longestMs });
      throw cause;
    });
    if (!responses[0]?.response_txn?.succeeded) return false;
    // The renewal must not shorten a lease of which nobody here knows any more when it ends.
    const endsAtMs = Math.max(own?.endsAtMs ?? 0, systemClock.monotonicMs() + (own ? leaseMs : longestMs));
    ownEntries.set({ name, key, session, createRevision, isHeld: true, leaseMs: longestMs, endsAtMs });
    return true;
  }
}

interface Move {
  readonly leaseMs: number;
  readonly timeoutMs: number;
  readonly own: OwnEntry | undefined;
}
