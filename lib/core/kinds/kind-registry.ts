import { LockConfigError } from '../errors.js';
import type { Events } from '../events.js';

/** How many keys without permits and mode are remembered. A power of two. */
const RECENT_KEYS = 256;
/** How many keys with permits are remembered. */
const MAX_KEYS_WITH_PERMITS = 1_024;
/** How many keys with a read lock and a write lock are remembered. */
const MAX_READ_WRITE_KEYS = 1_024;

/**
 * What this process remembers of its keys, to find a key that is used as two kinds, such as with permits and without: they would not
 * exclude each other. Its memory is bounded, so it finds mistakes, and proves nothing.
 */
export class KindRegistry {
  readonly #events: Events;
  /** A ring, because a lock without permits should cost no more than a write into an array. */
  readonly #recentKeys: string[] = Array.from({ length: RECENT_KEYS }, () => '');
  #next = 0;
  readonly #permits = new Map<string, number>();
  readonly #readWrite = new Set<string>();
  #hasWarned = false;

  constructor(events: Events) {
    this.#events = events;
  }

  /** A lock without permits. @throws LockConfigError if the key was used with permits */
  onPlain(key: string): void {
    if (this.#permits.size > 0 && this.#permits.has(key)) throw twoKindsError(key);
    if (this.#readWrite.size > 0 && this.#readWrite.has(key)) throw twoKindsError(key);
    this.#next = (this.#next + 1) % RECENT_KEYS;
    this.#recentKeys[this.#next] = key;
  }

  /** A lock with permits. @throws LockConfigError if the key was used without */
  onPermits(key: string, permits: number): void {
    const known = this.#permits.get(key);
    if (known === undefined && this.isPlain(key)) throw twoKindsError(key);
    if (this.#readWrite.has(key)) throw twoKindsError(key);
    if (known !== undefined && known !== permits && !this.#hasWarned) {
      this.#hasWarned = true;
      this.#events.emit('permits-differ', { key, permits, otherPermits: known });
    }
    this.#permits.set(key, permits);
    const [oldest] = this.#permits.keys();
    if (this.#permits.size > MAX_KEYS_WITH_PERMITS && oldest !== undefined) this.#permits.delete(oldest);
  }

  /** A lock to read or to write. @throws LockConfigError if the key was used as another kind */
  onReadWrite(key: string): void {
    if (this.#readWrite.has(key)) return;
    if (this.#permits.has(key) || this.isPlain(key)) throw twoKindsError(key);
    this.#readWrite.add(key);
    const [oldest] = this.#readWrite;
    if (this.#readWrite.size > MAX_READ_WRITE_KEYS && oldest !== undefined) this.#readWrite.delete(oldest);
  }

  /** Whether the key was used without permits lately. */
  isPlain(key: string): boolean {
    return this.#recentKeys.includes(key);
  }
}

const twoKindsError = (key: string) =>
  new LockConfigError(
    `Expected all calls for "${key}" to be of one kind (plain, with permits, with a mode), got two: they would not ` +
      `exclude each other. Pass permits or a mode everywhere or nowhere, or use another key.`,
    { key },
  );
