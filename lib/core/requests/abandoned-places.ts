import { systemClock } from '../clock.js';

/** How long the caller whose turn it is may take to acquire the key. Then it loses its place in the queue. */
const MAX_TURN_MS = 1_000;
/** Only keys that somebody asks for now are of interest. */
const MAX_KEYS = 1_000;

interface Turn {
  readonly id: string;
  readonly sinceMs: number;
}

interface PlaceStore<Place> {
  /** A text that changes with each write of the place. */
  idOf(place: Place): string;
  /** Removes the place, unless it has changed meanwhile. */
  remove(place: Place): Promise<unknown>;
}

/**
 * Removes the place of a caller that does not acquire the key when it is its turn, so that it does not keep others waiting.
 * It is no grant, so nothing is lost: if the caller still comes, it queues again.
 */
export class AbandonedPlaces<Place extends { readonly key: string }> {
  readonly #store: PlaceStore<Place>;
  readonly #turns = new Map<string, Turn>();

  constructor(store: PlaceStore<Place>) {
    this.#store = store;
  }

  /** The key is free and it is the turn of this caller. */
  onTurn(place: Place): void {
    const { key } = place;
    const id = this.#store.idOf(place);
    const nowMs = systemClock.monotonicMs();
    const known = this.#turns.get(key);
    if (known?.id !== id) {
      if (this.#turns.size >= MAX_KEYS) this.#turns.clear();
      this.#turns.set(key, { id, sinceMs: nowMs });
      return;
    }
    if (nowMs - known.sinceMs < MAX_TURN_MS) return;
    this.#turns.delete(key);
    // If it fails, the next caller that sees the place tries again.
    this.#store.remove(place).catch(() => undefined);
  }
}
