import { systemClock } from '../../../core/clock.js';
import { type Deadline, deadlineIn } from '../../../core/requests/deadline.js';
import { SweepTimer } from '../../../core/requests/sweep-timer.js';
import type { ZookeeperClient } from '../session/client.js';
import type { Session } from '../session/session.js';
import { remove } from '../wire/operations.js';
import { CODE, unlessCode } from '../wire/zookeeper-errors.js';
import { readCommitted } from './queue-reader.js';
import type { LockValue } from './stored-lock.js';

/** A lock of this process, or its place in the queue of a key. */
export interface OwnEntry {
  readonly key: string;
  readonly holder: string;
  readonly session: Session;
  /** Unknown while the request that creates the node has no reply. */
  readonly path: string | undefined;
  readonly czxid: bigint;
  readonly isHeld: boolean;
  readonly value: LockValue;
  /** When it ends if it is not renewed, on the monotonic clock. */
  readonly endsAtMs: number;
}

type Acquisition = Pick<OwnEntry, 'key' | 'holder'>;

const RETRY_MS = 500;
const DELETE_TIMEOUT_MS = 2_000;

/** No key of a lock has a NUL. */
const nameOf = ({ key, holder }: Acquisition) => `${key}\0${holder}`;

/**
 * The locks of this process, and its places in queues. They end in ZooKeeper with the session, which goes on as long as the process
 * does. So the process itself deletes what was not renewed in time. It does so later than the core gives the lock up.
 */
export class OwnEntries {
  readonly #client: ZookeeperClient;
  readonly #entries = new Map<string, OwnEntry>();
  /** They have ended and are being deleted. A renewal must not rely on them, and an acquisition must wait. */
  readonly #ending = new Map<string, OwnEntry>();
  /** The numbers of their requests whose replies may grant them. */
  readonly #inFlight = new Map<string, number>();
  readonly #timer = new SweepTimer(() => {
    this.#sweep();
    this.#schedule();
  });
  #isDeleting = false;

  constructor(client: ZookeeperClient) {
    this.#client = client;
  }

  /** The entry, unless its time is over. */
  get(acquisition: Acquisition): OwnEntry | undefined {
    const entry = this.#entries.get(nameOf(acquisition));
    if (!entry) return undefined;
    if (entry.session.isOver) {
      this.remove(acquisition);
      return undefined;
    }
    if (entry.endsAtMs > systemClock.monotonicMs()) return entry;
    this.#sweep();
    return undefined;
  }

  /** Also an entry whose time is over, as long as it has not been deleted. */
  find(acquisition: Acquisition): OwnEntry | undefined {
    return this.#entries.get(nameOf(acquisition)) ?? this.#ending.get(nameOf(acquisition));
  }

  /** To be asked after {@link get}, which may find that its time is over. */
  isEnding(acquisition: Acquisition): boolean {
    return this.#ending.has(nameOf(acquisition));
  }

  /** Runs a request that may grant the entry. It is not deleted meanwhile. */
  async whileInFlight<T>(acquisition: Acquisition, run: () => Promise<T>): Promise<T> {
    const name = nameOf(acquisition);
    this.#inFlight.set(name, (this.#inFlight.get(name) ?? 0) + 1);
    try {
      return await run();
    } finally {
      const left = (this.#inFlight.get(name) ?? 1) - 1;
      if (left > 0) this.#inFlight.set(name, left);
      else this.#inFlight.delete(name);
      this.#wakeAt(this.#entries.get(name)?.endsAtMs ?? Infinity);
    }
  }

  set(entry: OwnEntry): void {
    this.#entries.set(nameOf(entry), entry);
    this.#wakeAt(entry.endsAtMs);
  }

  /** Moves its end to `leaseMs` from now, unless it ends later. Returns `false` if it is gone, or another one took its place. */
  extend(entry: OwnEntry, leaseMs: number, value: LockValue): boolean {
    const present = this.get(entry);
    if (!present || present.path !== entry.path) return false;
    const endsAtMs = Math.max(present.endsAtMs, systemClock.monotonicMs() + leaseMs);
    this.set({ ...present, value, endsAtMs });
    return true;
  }

  remove(acquisition: Acquisition): void {
    this.#entries.delete(nameOf(acquisition));
    this.#ending.delete(nameOf(acquisition));
  }

  isInUse(session: Session): boolean {
    for (const entries of [this.#entries, this.#ending])
      for (const entry of entries.values()) if (entry.session === session) return true;
    return false;
  }

  get hasHeld(): boolean {
    return [...this.#entries.values()].some(({ isHeld, session }) => isHeld && !session.isOver);
  }

  /** Deletes nothing more: the session ends. */
  close(): void {
    this.#timer.cancel();
    this.#entries.clear();
    this.#ending.clear();
  }

  #wakeAt(atMs: number): void {
    if (!this.#client.isClosed) this.#timer.wakeAt(atMs);
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
      this.#entries.delete(name);
      // ZooKeeper has deleted it with the session.
      if (!entry.session.isOver) this.#ending.set(name, entry);
    }
    if (this.#ending.size > 0 && !this.#isDeleting) void this.#deleteEnding();
  }

  async #deleteEnding(): Promise<void> {
    this.#isDeleting = true;
    // After a failure the timer tries again. If ZooKeeper cannot be reached, the session ends there.
    await Promise.allSettled([...this.#ending.values()].map((entry) => this.#delete(entry)));
    this.#isDeleting = false;
    this.#schedule();
  }

  /** Over its own session alone: what arrives late over another connection is refused, and after its end there is nothing to delete. */
  async #delete(entry: OwnEntry): Promise<void> {
    const { session } = entry;
    try {
      const deadline = deadlineIn(DELETE_TIMEOUT_MS);
      await session.ready(deadline.leftMs);
      const paths = entry.path === undefined ? await this.#findPaths(entry, deadline) : [entry.path];
      const replies = paths.map((path) => unlessCode(session.send(remove(path)), CODE.noNode));
      await session.await(Promise.all(replies), deadline);
    } catch (cause) {
      if (!session.isOver) throw cause;
    }
    if (this.#ending.get(nameOf(entry)) === entry) this.#ending.delete(nameOf(entry));
  }

  /** The nodes that a request without a reply has created. */
  async #findPaths({ session, key, holder }: OwnEntry, deadline: Deadline): Promise<string[]> {
    const bucket = this.#client.keyspace.bucketOf(key);
    const entries = await readCommitted(session, { bucket, key }, deadline);
    return entries.filter((entry) => entry.holder === holder).map(({ path }) => path);
  }
}
