import { type Timer, systemClock } from '../../core/clock.js';
import type { Link } from './link.js';

/** Before another connection is tried beside one that stands, while the database takes no more of them. */
const PAUSE_MS = 1_000;

interface LinksParts {
  readonly most: number;
  connect(): Promise<Link>;
  /** A connection is free, or another may be opened. */
  onChange(): void;
  /** There is no connection, and none can be had for now. */
  onRefused(cause: unknown): void;
}

/** The connections over which requests leave. None is opened that nobody asks for, and none after the end. */
export class Links {
  readonly #parts: LinksParts;
  readonly #free: Link[] = [];
  /** Free or busy. */
  #standing = 0;
  #opening = 0;
  #pause: Timer | undefined;
  #isClosed = false;

  constructor(parts: LinksParts) {
    this.#parts = parts;
  }

  get mayOpen(): boolean {
    const isPausing = this.#pause !== undefined && this.#standing > 0;
    return !this.#isClosed && !isPausing && this.#standing + this.#opening < this.#parts.most;
  }

  take(): Link | undefined {
    for (let link = this.#free.pop(); link; link = this.#free.pop()) {
      if (link.isUsable) return link;
      this.#drop(link);
    }
    return undefined;
  }

  giveBack(link: Link): void {
    if (link.isUsable) this.#free.push(link);
    else this.#drop(link);
    this.#refuseIfClosed();
  }

  async open(): Promise<void> {
    this.#opening += 1;
    try {
      this.#free.push(await this.#parts.connect());
      this.#standing += 1;
    } catch (cause) {
      this.#failed(cause);
    } finally {
      this.#opening -= 1;
    }
    this.#refuseIfClosed();
    this.#parts.onChange();
  }

  /** What stands may still be used; when nothing does, whoever waits is refused. */
  close(): void {
    this.#isClosed = true;
    this.#pause?.cancel();
    this.#refuseIfClosed();
  }

  #failed(cause: unknown): void {
    if (this.#standing === 0) {
      this.#parts.onRefused(cause);
      return;
    }
    if (this.#isClosed) return;
    this.#pause?.cancel();
    this.#pause = systemClock.after(PAUSE_MS, () => {
      this.#pause = undefined;
      this.#parts.onChange();
    });
  }

  #refuseIfClosed(): void {
    if (!this.#isClosed || this.#standing + this.#opening > 0) return;
    this.#parts.onRefused(new Error('the connections to the database were closed'));
  }

  #drop(link: Link): void {
    this.#standing -= 1;
    link.giveUp();
  }
}
