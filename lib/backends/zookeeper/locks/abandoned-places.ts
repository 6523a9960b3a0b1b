import { systemClock } from '../../../core/clock.js';
import type { ZookeeperClient } from '../session/client.js';
import { remove } from '../wire/operations.js';
import type { StoredLock } from './stored-lock.js';

/** How long the caller whose turn it is may take to acquire the key. Then it loses its place in the queue. */
const MAX_TURN_MS = 1_000;
const DELETE_TIMEOUT_MS = 1_000;
/** Only keys that somebody asks for now are of interest. */
const MAX_KEYS = 1_000;

interface Turn {
  readonly path: string;
  readonly version: number;
  readonly sinceMs: number;
}

/**
 * Removes the place of a caller that does not acquire the key when it is its turn, so that it does not keep others waiting.
 * It is no grant, so nothing is lost: if the caller still comes, it queues again.
 */
export class AbandonedPlaces {
  readonly #client: ZookeeperClient;
  readonly #turns = new Map<string, Turn>();

  constructor(client: ZookeeperClient) {
    this.#client = client;
  }

  /** The key is free and it is the turn of this caller. */
  onTurn({ key, path, version }: StoredLock): void {
    const nowMs = systemClock.monotonicMs();
    const known = this.#turns.get(key);
    if (known?.path !== path || known.version !== version) {
      if (this.#turns.size >= MAX_KEYS) this.#turns.clear();
      this.#turns.set(key, { path, version, sinceMs: nowMs });
      return;
    }
    if (nowMs - known.sinceMs < MAX_TURN_MS) return;
    this.#turns.delete(key);
    // Not if it was acquired meanwhile. If it fails, the next caller that sees the place tries again.
    this.#client.call(remove(path, version), DELETE_TIMEOUT_MS).catch(() => undefined);
  }
}
