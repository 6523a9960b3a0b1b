import { systemClock } from '../../../core/clock.js';
import type { Keyspace } from '../keyspace.js';
import { hasNoEffect } from '../rpc/etcd-errors.js';
import { isUnchanged, put, transaction } from '../rpc/operations.js';
import type { Sessions } from '../session/sessions.js';
import type { OwnLocks } from './own-locks.js';
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
    const { sessions, ownLocks } = this.#parts;
    const { key, name, createRevision } = lock;
    if (ownLocks.isEnding(name)) return false;
    const endsAtMs = systemClock.monotonicMs() + timeoutMs;
    const leftMs = () => Math.max(endsAtMs - systemClock.monotonicMs(), 0);
    const own = ownLocks.get(name);
    if (own?.session.leaseId === lock.leaseId && lock.value.leaseMs >= leaseMs) {
      await own.session.prepare(leaseMs, leftMs());
      return ownLocks.extend({ ...own, isHeld: true }, leaseMs);
    }
    const longestMs = Math.max(leaseMs, lock.value.leaseMs);
    const session = sessions.get(longestMs);
    await session.prepare(longestMs, leftMs());
    const value = encodeValue(valueForRewrite(lock, { leaseMs: longestMs }));
    const move = transaction([isUnchanged(name, lock.modRevision)], [put(name, value, session.leaseId)]);
    const { responses } = await session.transact([move], leftMs()).catch((cause: unknown) => {
      if (!hasNoEffect(cause)) ownLocks.doubt({ name, key, session, leaseMs: longestMs });
      throw cause;
    });
    if (!responses[0]?.response_txn?.succeeded || ownLocks.isEnding(name)) return false;
    const lastsUntilMs = Math.max(own?.endsAtMs ?? 0, systemClock.monotonicMs() + leaseMs);
    ownLocks.set({
      name,
      key,
      session,
      createRevision,
      isHeld: true,
      leaseMs: longestMs,
      endsAtMs: lastsUntilMs,
    });
    return true;
  }
}
