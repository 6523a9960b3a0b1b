import { MemoryBackend } from '../../lib/backends/memory/memory-backend.js';
import type { LockBackend } from '../../lib/core/backend.js';
import type { ReleaseNotice } from '../../lib/core/store-notices.js';
import type { Clock } from '../../lib/core/clock.js';
import { QueueingBackend } from '../support/queueing-backend.js';
import type { Timeline } from './timeline.js';

const STORE_WALL_MS = Date.UTC(2026, 0, 1);

/** With a line that it keeps for those who wait, as Redis has it, or without one, as the memory backend. */
export type StoreKind = 'line' | 'memory';

/** Hears of keys that are free. `holder`: only its process is called. */
export type OnReleased = (notice: ReleaseNotice, holder?: string) => void;

/** The one store of all processes. Its clock shows true time. */
export class SimStore {
  readonly kind: StoreKind;
  readonly #timeline: Timeline;
  readonly #onReleased: OnReleased;
  #backend: LockBackend;
  isDown = false;
  /** Each request waits for so long. */
  slowMs = 0;

  constructor(kind: StoreKind, timeline: Timeline, onReleased: OnReleased) {
    this.kind = kind;
    this.#timeline = timeline;
    this.#onReleased = onReleased;
    this.#backend = this.#open();
  }

  get backend(): LockBackend {
    return this.#backend;
  }

  /** A restart of a store that keeps nothing, not even its fencing tokens. */
  reset(): void {
    this.#backend = this.#open();
  }

  /** How many stand in its line for the key. */
  waitingFor(key: string): number {
    return this.#backend instanceof QueueingBackend ? this.#backend.waitingFor(key) : 0;
  }

  #open(): LockBackend {
    const wallMs = () => STORE_WALL_MS + this.#timeline.nowMs;
    if (this.kind === 'line') {
      const nowUs = () => Math.floor(wallMs() * 1_000);
      return new QueueingBackend(nowUs, (holder, notice) => this.#onReleased(notice, holder));
    }
    const clock: Clock = {
      wallMs,
      monotonicMs: () => this.#timeline.nowMs,
      after: () => {
        throw new Error('The memory backend has no timers.');
      },
    };
    const backend = new MemoryBackend({ clock });
    backend.onReleased((notice) => this.#onReleased(notice));
    return backend;
  }
}
