import type { Moment } from '../../../core/clock.js';
import type { Greeting } from './greeting.js';

/** The uptime is told in whole seconds, of which it may have one too many. */
const UPTIME_ERROR_MS = 1_000;
/** In this part of a quarantine no run that we do not know can have had a vote: clocks may run 1 % faster. */
const UNSEEN_RATIO = 0.95;
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
  #wasOnAt: Moment = { monotonicMs: -Infinity, wallMs: -Infinity };
  #isPersistent = false;
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
  heard(sentAt: Moment): void {
    this.#wasOnAt = sentAt;
  }

  /** Whether it would forget nothing if it restarted now. */
  persists(isPersistent: boolean): void {
    this.#isPersistent = isPersistent;
  }

  meet(greeting: Greeting, now: Moment): void {
    const nowMs = now.monotonicMs;
    const known = this.#known;
    const isNew = known?.runId !== greeting.runId;
    const goesOn = known !== undefined && isNew && this.#goesOn(greeting, now);
    if (isNew) {
      this.#isOther = known !== undefined;
      this.#earlier = goesOn ? this.runs.slice(0, MOST_EARLIER_RUNS) : [];
    }
    const leftMs = greeting.isReplica ? this.#quarantineMs : isNew && !goesOn ? this.#leftMs(greeting) : 0;
    if (leftMs > 0) this.#fromMs = Math.max(this.#fromMs, nowMs + leftMs);
    this.#known = greeting;
    this.#wasOnAt = greeting.sentAt;
    this.#isPersistent = greeting.isPersistent;
  }

  #leftMs(greeting: Greeting): number {
    // Nobody saw how it started: what persists now may have forgotten when it did. A clock that was set back tells too little.
    if (!this.#known)
      return Math.min(Math.max(this.#quarantineMs - greeting.uptimeMs, 0), this.#quarantineMs);
    return this.#quarantineMs;
  }

  /** A server that started while the known one was up is another server. One that has been a replica may be another, too. */
  #goesOn(greeting: Greeting, now: Moment): boolean {
    const awayMs = now.monotonicMs - this.#wasOnAt.monotonicMs;
    const isSame = greeting.uptimeMs - UPTIME_ERROR_MS <= awayMs;
    // A run in between may have had a vote, and kept nothing. Only the wall clock goes on while a machine sleeps.
    const longestMs = Math.max(awayMs, now.wallMs - this.#wasOnAt.wallMs);
    if (longestMs >= (this.#quarantineMs - UPTIME_ERROR_MS) * UNSEEN_RATIO) return false;
    const hasFollowed = greeting.isReplica || greeting.wasReplica;
    // What the settings say now may have been set after the start.
    const hasStartedSo = greeting.isPersistent && !greeting.hasRewritten;
    return isSame && !hasFollowed && this.#isPersistent && hasStartedSo;
  }
}
