import type { Greeting } from './greeting.js';

/** The uptime is told in whole seconds, of which it may have one too many. */
const UPTIME_ERROR_MS = 1_000;

/**
 * From when on the word of the server at one address counts: not before all is over that it may have forgotten, or that
 * another one at this address granted before it.
 */
export class Trust {
  readonly #quarantineMs: number;
  #known: Greeting | undefined;
  /** The known one was surely on then. */
  #wasOnAtMs = -Infinity;
  #fromMs = -Infinity;
  #isOther = false;

  constructor(quarantineMs: number) {
    this.#quarantineMs = quarantineMs;
  }

  get fromMs(): number {
    return this.#fromMs;
  }

  /** Whether the known one came after another, be it only itself before it restarted. */
  get isOther(): boolean {
    return this.#isOther;
  }

  /** It has answered what was sent then. */
  heard(sentAtMs: number): void {
    this.#wasOnAtMs = sentAtMs;
  }

  meet(greeting: Greeting, nowMs: number): void {
    const known = this.#known;
    const isNew = known?.runId !== greeting.runId;
    if (isNew) this.#isOther = known !== undefined;
    const leftMs = greeting.isReplica ? this.#quarantineMs : isNew ? this.#leftMs(greeting, nowMs) : 0;
    if (leftMs > 0) this.#fromMs = Math.max(this.#fromMs, nowMs + leftMs);
    this.#known = greeting;
    this.#wasOnAtMs = greeting.sentAtMs;
  }

  #leftMs(greeting: Greeting, nowMs: number): number {
    const known = this.#known;
    // Nobody saw how it started: what persists now may have forgotten when it did. A clock that was set back tells too little.
    if (!known) return Math.min(Math.max(this.#quarantineMs - greeting.uptimeMs, 0), this.#quarantineMs);
    // Who started while the known one was on is another server. So may be who has followed one.
    const isSame = greeting.uptimeMs - UPTIME_ERROR_MS <= nowMs - this.#wasOnAtMs && !greeting.wasReplica;
    return isSame && known.isPersistent && greeting.isPersistent ? 0 : this.#quarantineMs;
  }
}
