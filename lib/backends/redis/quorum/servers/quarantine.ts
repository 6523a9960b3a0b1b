import type { Moment } from '../../../../core/clock.js';
import type { Handshake, ReplicationState } from './handshake.js';

/** INFO gives the uptime in whole seconds, and may be one second too high. */
const UPTIME_ERROR_MS = 1_000;
/**
 * A server that was away for less than this part of a quarantine cannot have had a vote in an unseen run in between. The
 * margin is for clocks that run up to 1 % faster.
 */
const UNSEEN_RATIO = 0.95;
/** Server lists forget older runs by then, unless a server restarts all the time. */
const MAX_EARLIER_RUNS = 8;

/**
 * Computes from when on the server at one address may vote: not before every lease has ended that it may have forgotten, or
 * that another server at this address may have granted before.
 */
export class Quarantine {
  readonly #quarantineMs: number;
  #lastHandshake: Handshake | undefined;
  /** The last time at which the known run was certainly up. */
  #lastRunningAt: Moment = { monotonicMs: -Infinity, wallMs: -Infinity };
  #isPersistent = false;
  #endsAtMs = -Infinity;
  /** The present run followed another known run: of the same server before a restart, or of another server. */
  #isDifferentRun = false;
  /** The present run was a replica: its data is that of another server. */
  #hasFollowed = false;
  #followCount = 0;
  #earlierRuns: readonly string[] = [];

  constructor(quarantineMs: number) {
    this.#quarantineMs = quarantineMs;
  }

  get endsAtMs(): number {
    return this.#endsAtMs;
  }

  /** The run id of the present run, followed by those of the earlier runs whose data it kept. */
  get runs(): readonly string[] {
    return this.#lastHandshake ? [this.#lastHandshake.runId, ...this.#earlierRuns] : [];
  }

  /** How often a run was seen to be a replica, or to have been one: it may have lost its data each time. */
  get followCount(): number {
    return this.#followCount;
  }

  /** The server has replied to a request that was sent then. `persists`: whether a restart now would lose nothing. */
  markRunning(sentAt: Moment, persists = this.#isPersistent): void {
    this.#lastRunningAt = sentAt;
    this.#isPersistent = persists;
  }

  /** The state of the same run, read again. If it is or was a replica meanwhile, it may have lost what it had granted. */
  onReplicationState(state: ReplicationState, now: Moment): void {
    const previous = this.#lastHandshake;
    if (!previous) return;
    if (state.isReplica || hasFollowedSince(previous, state)) this.onReplica(now);
    this.#lastHandshake = { ...previous, ...state };
  }

  /** The server is a replica, or was one a moment ago. */
  onReplica(now: Moment): void {
    this.#hasFollowed = true;
    this.#followCount += 1;
    this.#endsAtMs = Math.max(this.#endsAtMs, now.monotonicMs + this.#quarantineMs);
  }

  /** Why the server has no vote for so long. */
  fault(remainingMs: number): string {
    if (this.#hasFollowed) {
      const seconds = Math.ceil(remainingMs / 1_000);
      return `was a replica of another server and may have lost its locks, so it has no vote for another ${seconds} s`;
    }
    const reason = this.#isDifferentRun
      ? 'restarted and may have forgotten its locks, or is another server than before'
      : 'may have forgotten its locks when it restarted';
    return (
      `${reason}, so it has no vote for another ${Math.ceil(remainingMs / 1_000)} s. Changing its settings now does not ` +
      `shorten this (for processes that were connected, a server keeps its vote if it had appendonly yes and appendfsync ` +
      `always before it restarted)`
    );
  }

  onHandshake(handshake: Handshake, now: Moment): void {
    const nowMs = now.monotonicMs;
    const previous = this.#lastHandshake;
    const isNew = previous?.runId !== handshake.runId;
    const isContinuation = previous !== undefined && isNew && this.#continuesLastRun(handshake, now);
    if (isNew) {
      this.#isDifferentRun = previous !== undefined;
      this.#earlierRuns = isContinuation ? this.runs.slice(0, MAX_EARLIER_RUNS) : [];
      this.#hasFollowed = false;
    }
    const remainingMs = isNew && !isContinuation ? this.#remainingMs(handshake) : 0;
    if (remainingMs > 0) this.#endsAtMs = Math.max(this.#endsAtMs, nowMs + remainingMs);
    if (handshake.isReplica || (!isNew && hasFollowedSince(previous, handshake))) this.onReplica(now);
    this.#lastHandshake = handshake;
    this.#lastRunningAt = handshake.sentAt;
    this.#isPersistent = handshake.isPersistent;
  }

  #remainingMs(handshake: Handshake): number {
    // This process did not see the start: a server that persists now may have lost data then. The uptime is negative if the
    // server's clock was set back.
    if (!this.#lastHandshake)
      return Math.min(Math.max(this.#quarantineMs - handshake.uptimeMs, 0), this.#quarantineMs);
    return this.#quarantineMs;
  }

  /** If it started while the known run was up, it is another server. If it was a replica, it may have lost grants. */
  #continuesLastRun(handshake: Handshake, now: Moment): boolean {
    const awayMs = now.monotonicMs - this.#lastRunningAt.monotonicMs;
    const isSame = handshake.uptimeMs - UPTIME_ERROR_MS <= awayMs;
    // An unseen run in between may have voted and lost its data. While a machine sleeps, only the wall clock goes on.
    const longestMs = Math.max(awayMs, now.wallMs - this.#lastRunningAt.wallMs);
    if (longestMs >= (this.#quarantineMs - UPTIME_ERROR_MS) * UNSEEN_RATIO) return false;
    const hasFollowed = handshake.isReplica || handshake.wasReplica;
    // The present settings may have been changed after the start.
    const hasStartedSo = handshake.isPersistent && !handshake.hasRewritten;
    return isSame && !hasFollowed && this.#isPersistent && hasStartedSo;
  }
}

/** A server that stops being a replica gives its data a new id, and keeps that of its primary as the former one. */
const hasFollowedSince = (previous: ReplicationState, present: ReplicationState): boolean =>
  present.wasReplica && present.replicationId !== previous.replicationId;
