import type { Moment } from '../../../../core/clock.js';
import type { Handshake } from './handshake.js';

/** The uptime is told in whole seconds, of which it may have one too many. */
const UPTIME_ERROR_MS = 1_000;
/** In this part of a quarantine no run that we do not know can have had a vote: clocks may run 1 % faster. */
const UNSEEN_RATIO = 0.95;
/** Entries of older runs have lapsed, unless a server restarts all the time. */
const MAX_EARLIER_RUNS = 8;

/**
 * From when on the word of the server at one address counts: not before all is over that it may have forgotten, or that
 * another one at this address granted before it.
 */
export class Quarantine {
  readonly #quarantineMs: number;
  #lastHandshake: Handshake | undefined;
  /** The known one was surely on then. */
  #lastRunningAt: Moment = { monotonicMs: -Infinity, wallMs: -Infinity };
  #isPersistent = false;
  #endsAtMs = -Infinity;
  #isDifferentRun = false;
  #earlierRuns: readonly string[] = [];

  constructor(quarantineMs: number) {
    this.#quarantineMs = quarantineMs;
  }

  get endsAtMs(): number {
    return this.#endsAtMs;
  }

  /** Whether the known one came after another, be it only itself before it restarted. */
  get isDifferentRun(): boolean {
    return this.#isDifferentRun;
  }

  /** The present run, and before it those which it goes on, having forgotten nothing. */
  get runs(): readonly string[] {
    return this.#lastHandshake ? [this.#lastHandshake.runId, ...this.#earlierRuns] : [];
  }

  /** It has answered what was sent then. */
  markRunning(sentAt: Moment): void {
    this.#lastRunningAt = sentAt;
  }

  /** Whether it would forget nothing if it restarted now. */
  setPersistent(isPersistent: boolean): void {
    this.#isPersistent = isPersistent;
  }

  onHandshake(handshake: Handshake, now: Moment): void {
    const nowMs = now.monotonicMs;
    const previous = this.#lastHandshake;
    const isNew = previous?.runId !== handshake.runId;
    const isContinuation = previous !== undefined && isNew && this.#continuesLastRun(handshake, now);
    if (isNew) {
      this.#isDifferentRun = previous !== undefined;
      this.#earlierRuns = isContinuation ? this.runs.slice(0, MAX_EARLIER_RUNS) : [];
    }
    const remainingMs = handshake.isReplica
      ? this.#quarantineMs
      : isNew && !isContinuation
        ? this.#remainingMs(handshake)
        : 0;
    if (remainingMs > 0) this.#endsAtMs = Math.max(this.#endsAtMs, nowMs + remainingMs);
    this.#lastHandshake = handshake;
    this.#lastRunningAt = handshake.sentAt;
    this.#isPersistent = handshake.isPersistent;
  }

  #remainingMs(handshake: Handshake): number {
    // Nobody saw how it started: what persists now may have forgotten when it did. A clock that was set back tells too little.
    if (!this.#lastHandshake)
      return Math.min(Math.max(this.#quarantineMs - handshake.uptimeMs, 0), this.#quarantineMs);
    return this.#quarantineMs;
  }

  /** A server that started while the known one was up is another server. One that has been a replica may be another, too. */
  #continuesLastRun(handshake: Handshake, now: Moment): boolean {
    const awayMs = now.monotonicMs - this.#lastRunningAt.monotonicMs;
    const isSame = handshake.uptimeMs - UPTIME_ERROR_MS <= awayMs;
    // A run in between may have had a vote, and kept nothing. Only the wall clock goes on while a machine sleeps.
    const longestMs = Math.max(awayMs, now.wallMs - this.#lastRunningAt.wallMs);
    if (longestMs >= (this.#quarantineMs - UPTIME_ERROR_MS) * UNSEEN_RATIO) return false;
    const hasFollowed = handshake.isReplica || handshake.wasReplica;
    // What the settings say now may have been set after the start.
    const hasStartedSo = handshake.isPersistent && !handshake.hasRewritten;
    return isSame && !hasFollowed && this.#isPersistent && hasStartedSo;
  }
}
