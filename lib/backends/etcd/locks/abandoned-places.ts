import { systemClock } from '../../../core/clock.js';
import type { EtcdConnection } from '../rpc/etcd-connection.js';
import { isUnchanged, remove } from '../rpc/operations.js';
import type { StoredLock } from './stored-lock.js';

/** How long the caller whose turn it is may take to acquire the key. Then it loses its place in the queue. */
const MAX_TURN_MS = 1_000;
const DELETE_TIMEOUT_MS = 1_000;
/** Only keys that somebody asks for now are of interest. */
const MAX_KEYS = 1_000;

interface Turn {
  readonly name: string;
  readonly modRevision: bigint;
  readonly sinceMs: number;
}

/**
 * Removes the place of a caller that does not acquire the key when it is its turn, so that it does not keep others waiting.
 * It is no grant, so nothing is lost: if the caller still comes, it queues again.
 */
export class AbandonedPlaces {
  readonly #connection: EtcdConnection;
  readonly #turns = new Map<string, Turn>();

  constructor(connection: EtcdConnection) {
    this.#connection = connection;
  }

  /** The key is free and it is the turn of this caller. */
  onTurn({ key, name, modRevision }: StoredLock): void {
    const nowMs = systemClock.monotonicMs();
    const text = name.toString();
    const known = this.#turns.get(key);
    if (known?.name !== text || known.modRevision !== modRevision) {
      if (this.#turns.size >= MAX_KEYS) this.#turns.clear();
      this.#turns.set(key, { name: text, modRevision, sinceMs: nowMs });
      return;
    }
    if (nowMs - known.sinceMs < MAX_TURN_MS) return;
    this.#turns.delete(key);
    const request = { compare: [isUnchanged(name, modRevision)], success: [remove({ key: name })] };
    // If it fails, the next caller that sees the place tries again.
    this.#connection.call('KV.Txn', request, DELETE_TIMEOUT_MS).catch(() => undefined);
  }
}
