import { systemClock } from '../../../core/clock.js';
import { SweepTimer } from '../../../core/requests/sweep-timer.js';
import type { EtcdConnection } from '../rpc/etcd-connection.js';
import { remove } from '../rpc/operations.js';
import type { Session } from '../session/session.js';
import type { EntryNames } from './entry-names.js';

/** A lock of this process, or its place in the queue of a key. */
export interface OwnEntry {
  /** Its name in etcd. */
  readonly name: Buffer;
  readonly key: string;
  readonly session: Session;
  readonly createRevision: bigint;
  readonly isHeld: boolean;
  readonly leaseMs: number;
  /** When it ends if it is not renewed, on the monotonic clock. */
  readonly endsAtMs: number;
  /** A request that creates or moves it has an unknown outcome, and may still take effect. */
  readonly isInDoubt?: true;
}

const RETRY_MS = 500;
const DELETE_TIMEOUT_MS = 2_000;
const MAX_DELETES = 100;

/**
 * The locks of this process, and its places in queues. They share leases in etcd, which end only if the process does not
 * answer. So the process itself deletes what was not renewed in time. It does so later than the core gives the lock up.
 */
export class OwnEntries {
  readonly #connection: EtcdConnection;
  readonly #names: EntryNames;
  readonly #onRemoved: (name: string) => void;
  readonly #entries = new Map<string, OwnEntry>();
  /** They have ended and are being deleted. A renewal must not rely on them, and an acquisition must wait. */
  readonly #ending = new Map<string, OwnEntry>();
  /** The numbers of their requests whose replies may grant or move them. */
  readonly #inFlight = new Map<string, number>();
  readonly #usersOf = new Map<Session, number>();
  readonly #timer = new SweepTimer(() => {
    this.#sweep();
    this.#schedule();
  });
  #isDeleting = false;

  constructor(connection: EtcdConnection, names: EntryNames, onRemoved: (name: string) => void) {
    this.#connection = connection;
    this.#names = names;
    this.#onRemoved = onRemoved;
  }

  /** The entry, unless its time is over. */
  get(name: Buffer): OwnEntry | undefined {
    const entry = this.#entries.get(name.toString());
    if (!entry) return undefined;
    if (entry.session.isOver) {
      this.remove(name);
      return undefined;
    }
    if (entry.endsAtMs > systemClock.monotonicMs()) return entry;
    this.#sweep();
    return undefined;
  }

  /** To be asked after {@link get}, which may find that its time is over. */
  isEnding(name: Buffer): boolean {
    return this.#ending.has(name.toString());
  }

  /**
   * Sends a request that may grant or move these entries, and takes over what it replies. None of them is deleted meanwhile:
   * the deletion could come after the grant, and its reply before that of the grant.
   */
  async whileInFlight<T>(names: readonly Buffer[], send: () => Promise<T>): Promise<T> {
    const texts = names.map(String);
    for (const name of texts) addTo(this.#inFlight, name, 1);
    try {
      return await send();
    } finally {
      for (const name of texts) {
        addTo(this.#inFlight, name, -1);
        this.freeUnused(name);
        this.#wakeAt(this.#entries.get(name)?.endsAtMs ?? Infinity);
      }
    }
  }

  set(entry: OwnEntry): void {
    const name = entry.name.toString();
    this.#count(this.#entries.get(name)?.session, -1);
    this.#count(entry.session, 1);
    this.#entries.set(name, entry);
    this.#wakeAt(entry.endsAtMs);
  }

  /**
   * A request that grants, queues or moves this entry has an unknown outcome. Whatever has become of it, it is deleted after its
   * lease, unless it is renewed or acquired again.
   */
  markUnknown({ name, key, session, leaseMs }: LockInDoubt): void {
    this.#names.startAnew();
    const present = this.get(name);
    const endsAtMs = Math.max(present?.endsAtMs ?? 0, systemClock.monotonicMs() + leaseMs);
    const { createRevision = 0n, isHeld = true } = present ?? {};
    this.set({ name, key, session, createRevision, isHeld, leaseMs, endsAtMs, isInDoubt: true });
  }

  /** Moves its end to `leaseMs` from now, unless it ends later. Returns `false` if it is gone, or another one took its place. */
  extend(entry: OwnEntry, leaseMs: number): boolean {
    const present = this.get(entry.name);
    if (present?.createRevision !== entry.createRevision) return false;
    const endsAtMs = Math.max(present.endsAtMs, systemClock.monotonicMs() + leaseMs);
    this.set({ ...present, endsAtMs });
    return true;
  }

  remove(name: Buffer): void {
    const text = name.toString();
    this.#count(this.#entries.get(text)?.session, -1);
    if (this.#entries.delete(text)) this.#onRemoved(text);
  }

  /** A release has found nothing. A grant in doubt may still arrive after it. */
  removeUnlessInDoubt(name: Buffer): void {
    if (!this.#entries.get(name.toString())?.isInDoubt) this.remove(name);
  }

  /** Lets a later acquisition have the name, unless something is known of its entry. */
  freeUnused(name: Buffer | string): void {
    const text = name.toString();
    if (this.#entries.has(text) || this.#ending.has(text) || this.#inFlight.has(text)) return;
    this.#names.free(text);
  }

  isInUse(session: Session): boolean {
    return (this.#usersOf.get(session) ?? 0) > 0;
  }

  /** Deletes nothing more: the leases of the sessions end. */
  close(): void {
    this.#timer.cancel();
    this.#names.startAnew();
    this.#entries.clear();
    this.#ending.clear();
    this.#usersOf.clear();
  }

  #count(session: Session | undefined, change: number): void {
    if (session) addTo(this.#usersOf, session, change);
  }

  #wakeAt(atMs: number): void {
    if (!this.#connection.isClosed) this.#timer.wakeAt(atMs);
  }

  #schedule(): void {
    let endsAtMs = this.#ending.size > 0 ? systemClock.monotonicMs() + RETRY_MS : Infinity;
    for (const [name, entry] of this.#entries)
      if (!this.#inFlight.has(name)) endsAtMs = Math.min(endsAtMs, entry.endsAtMs);
    this.#wakeAt(endsAtMs);
  }

  #sweep(): void {
    const nowMs = systemClock.monotonicMs();
    for (const [name, entry] of this.#entries) {
      if (entry.endsAtMs > nowMs && !entry.session.isOver) continue;
      if (this.#inFlight.has(name)) continue;
      this.remove(entry.name);
      // etcd has deleted it with the lease.
      if (entry.session.isOver) this.freeUnused(name);
      else this.#ending.set(name, entry);
    }
    if (this.#ending.size > 0 && !this.#isDeleting) void this.#deleteEnding();
  }

  async #deleteEnding(): Promise<void> {
    this.#isDeleting = true;
    const sessions = new Set([...this.#ending.values()].map((entry) => entry.session));
    // After a failure the timer tries again. If etcd cannot be reached, the lease ends there.
    await Promise.allSettled([...sessions].map((session) => this.#deleteOf(session)));
    this.#isDeleting = false;
    this.#schedule();
  }

  /**
   * In transactions of their session. So one that arrives late deletes no later grant of the same holder, and no late grant
   * arrives after it: the session is fenced off before.
   */
  async #deleteOf(session: Session): Promise<void> {
    const ended = [...this.#ending].filter(([, entry]) => entry.session === session);
    try {
      for (let start = 0; start < ended.length; start += MAX_DELETES) {
        const part = ended.slice(start, start + MAX_DELETES);
        await session.fenceOff(DELETE_TIMEOUT_MS);
        await session.transact(
          part.map(([, { name }]) => remove({ key: name })),
          DELETE_TIMEOUT_MS,
        );
        for (const [name] of part) this.#onDeleted(name);
      }
    } catch (cause) {
      if (!session.isOver) throw cause;
      for (const [name] of ended) this.#onDeleted(name);
    }
  }

  #onDeleted(name: string): void {
    this.#ending.delete(name);
    this.freeUnused(name);
  }
}

/** A count of 0 has no entry. */
function addTo<Key>(counts: Map<Key, number>, key: Key, change: number): void {
  const count = (counts.get(key) ?? 0) + change;
  if (count > 0) counts.set(key, count);
  else counts.delete(key);
}

type LockInDoubt = Pick<OwnEntry, 'name' | 'key' | 'session' | 'leaseMs'>;
