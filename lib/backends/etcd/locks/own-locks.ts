import { type Timer, systemClock } from '../../../core/clock.js';
import type { EtcdConnection } from '../rpc/etcd-connection.js';
import { remove } from '../rpc/operations.js';
import type { Session } from '../session/session.js';

/** A lock of this process, or its place in the queue of a key. */
export interface OwnLock {
  /** Its name in etcd. */
  readonly name: Buffer;
  readonly key: string;
  readonly session: Session;
  readonly createRevision: bigint;
  readonly isHeld: boolean;
  readonly leaseMs: number;
  /** When it ends if it is not renewed, on the monotonic clock. */
  readonly endsAtMs: number;
}

const MIN_SWEEP_MS = 20;
const RETRY_MS = 500;
const DELETE_TIMEOUT_MS = 2_000;
const MAX_DELETES = 100;

/**
 * The locks of this process, and its places in queues. They share leases in etcd, which end only if the process does not
 * answer. So the process itself deletes what was not renewed in time. It does so later than the core gives the lock up.
 */
export class OwnLocks {
  readonly #connection: EtcdConnection;
  readonly #onRemoved: (name: string) => void;
  readonly #locks = new Map<string, OwnLock>();
  /** They have ended and are being deleted. A renewal must not rely on them. */
  readonly #ending = new Map<string, OwnLock>();
  readonly #usersOf = new Map<Session, number>();
  #timer: Timer | undefined;
  #isDeleting = false;

  constructor(connection: EtcdConnection, onRemoved: (name: string) => void) {
    this.#connection = connection;
    this.#onRemoved = onRemoved;
  }

  /** The lock, unless its time is over. */
  get(name: Buffer): OwnLock | undefined {
    const lock = this.#locks.get(name.toString());
    if (!lock) return undefined;
    if (lock.session.isOver) {
      this.remove(name);
      return undefined;
    }
    if (lock.endsAtMs > systemClock.monotonicMs()) return lock;
    this.#sweep();
    return undefined;
  }

  isEnding(name: Buffer): boolean {
    return this.#ending.has(name.toString());
  }

  set(lock: OwnLock): void {
    const name = lock.name.toString();
    this.#count(this.#locks.get(name)?.session, -1);
    this.#count(lock.session, 1);
    this.#locks.set(name, lock);
    this.#schedule();
  }

  /** Returns whether the lock was still there, and its end is not before this now. */
  extend(lock: OwnLock, leaseMs: number): boolean {
    const present = this.get(lock.name);
    if (present?.createRevision !== lock.createRevision) return false;
    const endsAtMs = Math.max(present.endsAtMs, systemClock.monotonicMs() + leaseMs);
    this.set({ ...present, endsAtMs });
    return true;
  }

  remove(name: Buffer): void {
    const text = name.toString();
    this.#count(this.#locks.get(text)?.session, -1);
    if (this.#locks.delete(text)) this.#onRemoved(text);
  }

  isInUse(session: Session): boolean {
    return (this.#usersOf.get(session) ?? 0) > 0;
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #count(session: Session | undefined, change: number): void {
    if (!session) return;
    const count = (this.#usersOf.get(session) ?? 0) + change;
    if (count > 0) this.#usersOf.set(session, count);
    else this.#usersOf.delete(session);
  }

  #schedule(): void {
    if (this.#timer || this.#locks.size + this.#ending.size === 0) return;
    let endsAtMs = this.#ending.size > 0 ? systemClock.monotonicMs() + RETRY_MS : Infinity;
    for (const lock of this.#locks.values()) endsAtMs = Math.min(endsAtMs, lock.endsAtMs);
    const delayMs = Math.max(endsAtMs - systemClock.monotonicMs(), MIN_SWEEP_MS);
    this.#timer = systemClock.after(delayMs, () => {
      this.#timer = undefined;
      this.#sweep();
      this.#schedule();
    });
  }

  #sweep(): void {
    const nowMs = systemClock.monotonicMs();
    for (const [name, lock] of this.#locks) {
      if (lock.endsAtMs > nowMs && !lock.session.isOver) continue;
      this.remove(lock.name);
      // etcd has deleted it with the lease.
      if (!lock.session.isOver) this.#ending.set(name, lock);
    }
    if (this.#ending.size > 0 && !this.#isDeleting) void this.#delete();
  }

  async #delete(): Promise<void> {
    this.#isDeleting = true;
    const ended = [...this.#ending].slice(0, MAX_DELETES);
    const success = ended.map(([, { name }]) => remove({ key: name }));
    try {
      await this.#connection.call('KV.Txn', { compare: [], success }, DELETE_TIMEOUT_MS);
      for (const [name] of ended) this.#ending.delete(name);
    } catch {
      // The timer tries again. If etcd cannot be reached, the lease ends there.
      for (const [name, { session }] of ended) if (session.isOver) this.#ending.delete(name);
    } finally {
      this.#isDeleting = false;
      this.#schedule();
    }
  }
}
