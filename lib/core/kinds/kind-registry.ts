import { LockConfigError } from '../errors.js';
import type { Events } from '../events.js';

/** How many keys without permits and mode are remembered. A power of two. */
const RECENT_KEYS = 256;
/** How many keys with permits are remembered. */
const MAX_KEYS_WITH_PERMITS = 1_024;
/** How many keys with a mode are remembered. */
const MAX_KEYS_WITH_MODE = 1_024;

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
  readonly #modes = new Set<string>();
  #hasWarned = false;

  constructor(events: Events) {
    this.#events = events;
  }

  /** A lock without permits. @throws LockConfigError if the key was used with permits */
  onPlain(key: string): void {
    this.#next = (this.#next + 1) % RECENT_KEYS;
    this.#recentKeys[this.#next] = key;
    if (this.#permits.size > 0 && this.#permits.has(key)) throw twoKindsError(key);
    if (this.#modes.size > 0 && this.#modes.has(key)) throw twoKindsError(key);
  }

  /** A lock with permits. @throws LockConfigError if the key was used without */
  onPermits(key: string, permits: number): void {
    const known = this.#permits.get(key);
    if (known === undefined && this.isPlain(key)) throw twoKindsError(key);
    if (this.#modes.has(key)) throw twoKindsError(key);
    if (known !== undefined && known !== permits && !this.#hasWarned) {
      this.#hasWarned = true;
      this.#events.emit('permits-differ', { key, permits, otherPermits: known });
    }
    this.#permits.set(key, permits);
    const [oldest] = this.#permits.keys();
    if (this.#permits.size > MAX_KEYS_WITH_PERMITS && oldest !== undefined) this.#permits.delete(oldest);
  }

  /** A lock to read or to write. @throws LockConfigError if the key was used as another kind */
  onMode(key: string): void {
    if (this.#modes.has(key)) return;
    if (this.#permits.has(key) || this.isPlain(key)) throw twoKindsError(key);
    this.#modes.add(key);
    const [oldest] = this.#modes;
    if (this.#modes.size > MAX_KEYS_WITH_MODE && oldest !== undefined) this.#modes.delete(oldest);
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
