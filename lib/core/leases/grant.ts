import type { AcquireRequest, Claim, ReleaseRequest, ReleaseResult } from '../backend.js';
import { type Clock, type Moment, clocksAgree, momentOf } from '../clock.js';
import type { RenewalTimer } from './renewal-timer.js';

/** Clocks of two machines may run at slightly different speeds; this part of a lease is never counted on. */
const DRIFT_RATIO = 0.01;
const DRIFT_MIN_MS = 2;

/** A caller who has a grant. */
export interface CurrentLease {
  readonly fencingToken: bigint;
  remainingMs(): number;
  /** Looks whether the lease is over. */
  detectLoss(): void;
  /** The store no longer has the grant. */
  onGrantLost(): void;
  /** Asks the work to end without giving the lock up. */
  abort(reason: Error): void;
}

/** Those of this process who wait for the key of a grant. */
export interface HandoffQueue {
  /** Gives the grant to the next of them, if it may pass on. Says whether it did. */
  tryHandOff(grant: Grant): boolean;
  /** The process no longer has the grant: it was given back, which the store answered so, or lost. */
  onGrantEnded(grant: Grant, result?: ReleaseResult): void;
}

/** A request for a lease, as far as its validity depends on it. */
interface ConfirmedRequest {
  readonly sentAt: Moment;
  readonly leaseMs: number;
}

interface GrantParts {
  readonly key: string;
  readonly request: AcquireRequest;
  readonly fencingToken: bigint;
  /** Sampled before the request was sent: the store began to count later than that. */
  readonly sentAt: Moment;
  /** The monotonic time until which the request, however late it arrives, may make the lease last in the store. */
  readonly lastsUntilMs: number;
}

/** A row of fencing tokens. */
interface TokenBlock {
  next: bigint;
  left: number;
}

/**
 * What the store granted to this process: one holder, who may be several callers in turn.
 *
 * Validity counts from before the request was sent, so it ends here before the lease ends in the store.
 */
export class Grant {
  readonly key: string;
  readonly claim: Claim;
  readonly leaseMs: number;
  /** Whether it is that of a tick. */
  readonly isRun: boolean;
  /** Since when it has passed from caller to caller although others may wait elsewhere. */
  handoffsSinceMs: number;
  /** The store was asked for more of it, and has not given it yet. */
  isRequestingTokens = false;
  /** The caller who has it now. */
  currentLease: CurrentLease | undefined;
  waitQueue: HandoffQueue | undefined;
  /** What its keeper has planned for it, until it is dropped. */
  renewalTimer: RenewalTimer<Grant> | undefined;
  /** Whether somebody keeps renewing it. */
  isRenewed = false;
  /** The how manyth run of its tick it is, if it is one. */
  attempt = 1;
  /** Whether that run has ended. */
  hasEnded = false;
  readonly #clock: Clock;
  readonly #firstToken: bigint;
  #tokens: TokenBlock;
  #moreTokens: TokenBlock | undefined;
  #confirmedAt: Moment;
  #validUntilMs: number;
  #lastsUntilMs: number;

  constructor({ key, request, fencingToken, sentAt, lastsUntilMs }: GrantParts, clock: Clock) {
    const { leaseMs, tokenCount = 1 } = request;
    this.key = key;
    this.claim = request;
    this.leaseMs = leaseMs;
    this.isRun = request.tick !== undefined;
    this.handoffsSinceMs = sentAt.monotonicMs;
    this.#clock = clock;
    this.#firstToken = fencingToken;
    this.#tokens = { next: fencingToken, left: tokenCount };
    this.#confirmedAt = sentAt;
    this.#validUntilMs = endOfValidity(sentAt.monotonicMs, leaseMs);
    this.#lastsUntilMs = lastsUntilMs;
  }

  /** The monotonic time of the newest request that the store confirmed. */
  get confirmedAtMs(): number {
    return this.#confirmedAt.monotonicMs;
  }

  get validUntilMs(): number {
    return this.#validUntilMs;
  }

  /** Until then, on the monotonic clock, the store may think that we hold it; not longer. */
  get lastsUntilMs(): number {
    return this.#lastsUntilMs;
  }

  /** How much longer the store may think that we hold it. */
  get lastsForMs(): number {
    return this.#lastsUntilMs - this.#clock.monotonicMs();
  }

  get remainingMs(): number {
    return this.#validUntilMs - this.#clock.monotonicMs();
  }

  get isOver(): boolean {
    return this.remainingMs <= 0;
  }

  /** Counted from before the confirmed request was sent: an answer may have been read only after the sleep. */
  get clocksAgree(): boolean {
    return clocksAgree(this.#confirmedAt, momentOf(this.#clock));
  }

  /** How it is given back. */
  get releaseRequest(): ReleaseRequest {
    const { key, holder } = this.claim;
    return this.hasEnded ? { key, holder, hasEnded: true } : this.claim;
  }

  /** For how many more callers it has a fencing token. */
  get tokensLeft(): number {
    return this.#tokens.left + (this.#moreTokens?.left ?? 0);
  }

  /** Another one for each caller, growing. */
  takeToken(): bigint {
    const token = this.#tokens.next;
    this.#tokens.next += 1n;
    this.#tokens.left -= 1;
    if (this.#tokens.left === 0 && this.#moreTokens) {
      this.#tokens = this.#moreTokens;
      this.#moreTokens = undefined;
    }
    return token;
  }

  /** The store gave more of them, as nobody else waits. */
  addTokens(first: bigint, count: number, sentAt: Moment): void {
    this.handoffsSinceMs = sentAt.monotonicMs;
    this.isRequestingTokens = false;
    const more = { next: first, left: count };
    if (this.#tokens.left === 0) this.#tokens = more;
    else this.#moreTokens = more;
  }

  hasHandedOff(token: bigint): boolean {
    return (
      this.currentLease !== undefined && this.#firstToken <= token && token < this.currentLease.fencingToken
    );
  }

  /** A renewal is asked for, and may take effect whatever becomes of its answer. */
  extendLastsUntil(latestEndMs: number): void {
    this.#lastsUntilMs = Math.max(this.#lastsUntilMs, latestEndMs);
  }

  /**
   * Answers may overtake each other, so neither value goes back; but if the machine slept in between, what was counted
   * before is worth nothing.
   */
  onConfirmed({ sentAt, leaseMs }: ConfirmedRequest): void {
    const validUntilMs = endOfValidity(sentAt.monotonicMs, leaseMs);
    const isNewer = sentAt.monotonicMs > this.#confirmedAt.monotonicMs;
    if (isNewer && !clocksAgree(this.#confirmedAt, sentAt)) this.#validUntilMs = validUntilMs;
    else this.#validUntilMs = Math.max(this.#validUntilMs, validUntilMs);
    if (isNewer) this.#confirmedAt = sentAt;
  }
}

const endOfValidity = (sentAtMs: number, leaseMs: number) =>
  sentAtMs + leaseMs - Math.max(leaseMs * DRIFT_RATIO, DRIFT_MIN_MS);
