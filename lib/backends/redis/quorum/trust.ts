import type { Greeting } from './greeting.js';

/** The uptime is told in whole seconds, of which it may have one too many. */
const UPTIME_ERROR_MS = 1_000;
/** Entries of older runs have lapsed, unless a server restarts all the time. */
const MOST_EARLIER_RUNS = 8;

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
  #earlier: readonly string[] = [];

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

  /** The present run, and before it those which it goes on, having forgotten nothing. */
  get runs(): readonly string[] {
    return this.#known ? [this.#known.runId, ...this.#earlier] : [];
  }

  /** It has answered what was sent then. */
  heard(sentAtMs: number): void {
    this.#wasOnAtMs = sentAtMs;
  }

  meet(greeting: Greeting, nowMs: number): void {
    const known = this.#known;
    const isNew = known?.runId !== greeting.runId;
    const goesOn = known !== undefined && isNew && this.#goesOn(known, greeting, nowMs);
    if (isNew) {
      this.#isOther = known !== undefined;
      this.#earlier = goesOn ? this.runs.slice(0, MOST_EARLIER_RUNS) : [];
    }
    const leftMs = greeting.isReplica ? this.#quarantineMs : isNew && !goesOn ? this.#leftMs(greeting) : 0;
    if (leftMs > 0) this.#fromMs = Math.max(this.#fromMs, nowMs + leftMs);
    this.#known = greeting;
    this.#wasOnAtMs = greeting.sentAtMs;
  }

  #leftMs(greeting: Greeting): number {
    // Nobody saw how it started: what persists now may have forgotten when it did. A clock that was set back tells too little.
    if (!this.#known)
      return Math.min(Math.max(this.#quarantineMs - greeting.uptimeMs, 0), this.#quarantineMs);
    return this.#quarantineMs;
  }

  /** Who started while the known one was on is another server. So may be who has followed one. */
  #goesOn(known: Greeting, greeting: Greeting, nowMs: number): boolean {
    const isSame = greeting.uptimeMs - UPTIME_ERROR_MS <= nowMs - this.#wasOnAtMs;
    const hasFollowed = greeting.isReplica || greeting.wasReplica;
    return isSame && !hasFollowed && known.isPersistent && greeting.isPersistent;
  }
}
