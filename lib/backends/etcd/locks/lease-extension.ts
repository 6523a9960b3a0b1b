import { systemClock } from '../../../core/clock.js';
import type { Keyspace } from '../keyspace.js';
import { hasNoEffect } from '../rpc/etcd-errors.js';
import { isUnchanged, put, transaction } from '../rpc/operations.js';
import { storeTime } from '../../../core/requests/store-time.js';
import type { Sessions } from '../session/sessions.js';
import type { OwnLock, OwnLocks } from './own-locks.js';
import { type StoredLock, encodeValue, valueForRewrite } from './stored-lock.js';

interface LeaseExtensionParts {
  readonly keyspace: Keyspace;
  readonly sessions: Sessions;
  readonly ownLocks: OwnLocks;
}

/** Moves a held lock to a session whose lease is long enough. */
export class LeaseExtension {
  readonly #parts: LeaseExtensionParts;

  constructor(parts: LeaseExtensionParts) {
    this.#parts = parts;
  }

  /** Returns whether the lock is held for this long now. Not if it has changed since it was read. */
  async extend(lock: StoredLock, leaseMs: number, timeoutMs: number): Promise<boolean> {
    const { ownLocks } = this.#parts;
    const own = ownLocks.get(lock.name);
    if (ownLocks.isEnding(lock.name)) return false;
    if (own?.session.leaseId === lock.leaseId && lock.value.leaseMs >= leaseMs) {
      // No late transaction can end a held lock, so nothing has to be written.
      await own.session.confirm(leaseMs, timeoutMs);
      return ownLocks.extend({ ...own, isHeld: true }, leaseMs);
    }
    return ownLocks.whileInFlight([lock.name], () => this.#move(lock, { leaseMs, timeoutMs, own }));
  }

  async #move(lock: StoredLock, { leaseMs, timeoutMs, own }: Move): Promise<boolean> {
    const { sessions, ownLocks } = this.#parts;
    const { key, name, createRevision } = lock;
    const time = storeTime(timeoutMs);
    const longestMs = Math.max(leaseMs, lock.value.leaseMs);
    const session = sessions.get(longestMs);
    await session.prepare(longestMs, time.leftMs);
    const value = encodeValue(valueForRewrite(lock, { leaseMs: longestMs }));
    const move = transaction([isUnchanged(name, lock.modRevision)], [put(name, value, session.leaseId)]);
    const { responses } = await session.transact([move], time.leftMs).catch((cause: unknown) => {
      if (!hasNoEffect(cause)) ownLocks.doubt({ name, key, session, leaseMs: longestMs });
      throw cause;
    });
    if (!responses[0]?.response_txn?.succeeded) return false;
    const endsAtMs = Math.max(own?.endsAtMs ?? 0, systemClock.monotonicMs() + leaseMs);
    ownLocks.set({ name, key, session, createRevision, isHeld: true, leaseMs: longestMs, endsAtMs });
    return true;
  }
}

interface Move {
  readonly leaseMs: number;
  readonly timeoutMs: number;
  readonly own: OwnLock | undefined;
}
