import type { AcquireRequest, Claim, ReleaseRequest, ReleaseResult } from '../backend.js';
import { type Clock, type Moment, clocksAgree, momentOf } from '../clock.js';
import type { RenewalTimer } from './renewal-timer.js';

/** Clocks of two machines may run at slightly different speeds, so a lease counts as valid for this part less. */
const DRIFT_RATIO = 0.01;
const DRIFT_MIN_MS = 2;

/** The lease of the caller that currently uses a grant. */
export interface CurrentLease {
  readonly fencingToken: bigint;
  remainingMs(): number;
  /** Marks the lease as lost if it has expired. */
  detectLoss(): void;
  /** The store no longer has the grant. */
  onGrantLost(): void;
  /** Aborts the signal of the work. The lock stays held. */
  abort(reason: Error): void;
}

/** The waiters of this process for the key of a grant. */
export interface HandoffQueue {
  /** Hands the grant over to the next waiter if that is allowed. Returns whether it did. */
  tryHandOff(grant: Grant): boolean;
  /** The process no longer has the grant. It was released with this result, or lost if there is none. */
  onGrantEnded(grant: Grant, result?: ReleaseResult): void;
}

/** A confirmed acquisition or renewal: what the validity of the grant follows from. */
interface ConfirmedRequest {
  readonly sentAt: Moment;
  readonly leaseMs: number;
}

interface GrantParts {
  readonly key: string;
  readonly request: AcquireRequest;
  readonly fencingToken: bigint;
  /** The moment before the request was sent. The lease in the store began later. */
  readonly sentAt: Moment;
  /** The monotonic time until which the lease may last in the store, however late the request arrives there. */
  readonly lastsUntilMs: number;
}

/** Consecutive fencing tokens that no lease has used yet. */
interface TokenBlock {
  next: bigint;
  left: number;
}

/**
 * What the store granted to this process. To the store it is one holder; here, several callers may use it in turn.
 *
 * Its validity counts from the moment before the request was sent, so it ends here before the lease ends in the store.
 */
export class Grant {
  readonly key: string;
  readonly claim: Claim;
  readonly leaseMs: number;
  /** Whether a tick was claimed with it. */
  readonly isRun: boolean;
  /** The monotonic time since which it is handed over although other processes may wait. */
  handoffsSinceMs: number;
  /** More fencing tokens were requested and have not arrived. */
  isRequestingTokens = false;
  /** The lease of the caller that uses it now. */
  currentLease: CurrentLease | undefined;
  waitQueue: HandoffQueue | undefined;
  /** Set while the renewer has this grant. */
  renewalTimer: RenewalTimer<Grant> | undefined;
  /** Whether the renewer renews it. Without that it expires. */
  isRenewed = false;
  /** With a claimed tick: 1 for its first run, 2 for the run that takes over from it, … */
  attempt = 1;
  /** Whether the run of the tick has ended, so that no other run takes it over. */
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

  /** The monotonic time at which the newest confirmed request was sent. */
  get confirmedAtMs(): number {
    return this.#confirmedAt.monotonicMs;
  }

  /** The monotonic time until which this process may rely on the grant. */
  get validUntilMs(): number {
    return this.#validUntilMs;
  }

  /** The monotonic time until which the store may keep the grant. It is later than {@link validUntilMs}. */
  get lastsUntilMs(): number {
    return this.#lastsUntilMs;
  }

  /** How much longer the store may keep the grant, in ms. */
  get lastsForMs(): number {
    return this.#lastsUntilMs - this.#clock.monotonicMs();
  }

  get remainingMs(): number {
    return this.#validUntilMs - this.#clock.monotonicMs();
  }

  get isOver(): boolean {
    return this.remainingMs <= 0;
  }

  /**
   * Whether the wall clock and the monotonic clock agree about the time since the confirmed request was sent. Counted
   * from before the request, because its result may have been read only after the machine slept.
   */
  get clocksAgree(): boolean {
    return clocksAgree(this.#confirmedAt, momentOf(this.#clock));
  }

  /** The request that releases it. */
  get releaseRequest(): ReleaseRequest {
    const { key, holder } = this.claim;
    return this.hasEnded ? { key, holder, hasEnded: true } : this.claim;
  }

  /** The number of further callers for which it has a fencing token. */
  get tokensLeft(): number {
    return this.#tokens.left + (this.#moreTokens?.left ?? 0);
  }

  /** Returns the next fencing token, larger than all before. */
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

  /** Adds fencing tokens that the store reserved, which it does only if no other process waits. */
  addTokens(first: bigint, count: number, sentAt: Moment): void {
    this.handoffsSinceMs = sentAt.monotonicMs;
    this.isRequestingTokens = false;
    const more = { next: first, left: count };
    if (this.#tokens.left === 0) this.#tokens = more;
    else this.#moreTokens = more;
  }

  /** Whether the token belongs to an earlier caller of this grant, which has handed it over. */
  hasHandedOff(token: bigint): boolean {
    return (
      this.currentLease !== undefined && this.#firstToken <= token && token < this.currentLease.fencingToken
    );
  }

  /** Called before a renewal is sent: it may take effect even if its result is lost. */
  extendLastsUntil(latestEndMs: number): void {
    this.#lastsUntilMs = Math.max(this.#lastsUntilMs, latestEndMs);
  }

  /**
   * Extends the validity from a confirmed request. Results may overtake each other, so neither value goes back. The
   * exception: if the machine slept in between, the old validity was measured by a stopped clock and no longer counts.
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
