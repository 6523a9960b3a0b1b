import type { AcquireRequest, ReleaseRequest } from '../backend.js';
import type { Granted } from '../backend-results.js';
import { type Clock, type Moment, clocksAgree, momentOf } from '../clock.js';

/** Clocks of two machines may run at slightly different speeds, so a lease counts as valid for this part less. */
const DRIFT_RATIO = 0.01;
const DRIFT_MIN_MS = 2;

/** A confirmed acquisition or renewal: what the validity of the grant follows from. */
interface ConfirmedRequest {
  readonly sentAt: Moment;
  readonly leaseMs: number;
}

interface GrantParts {
  readonly key: string;
  readonly request: AcquireRequest;
  readonly granted: Granted;
  /** The moment before the request was sent. The lease in the store began later. */
  readonly sentAt: Moment;
  /** The monotonic time until which the lease may last in the store, however late the request arrives there. */
  readonly latestStoreEndMs: number;
}

/** Consecutive fencing tokens that no caller has used yet. */
interface TokenBlock {
  readonly first: bigint;
  readonly count: number;
}

/**
 * What the store granted to this process. To the store it is one holder; here, several callers may use it in turn.
 *
 * Its validity counts from the moment before the request was sent, so it ends here before the lease ends in the store.
 */
export class Grant {
  readonly key: string;
  readonly request: AcquireRequest;
  readonly leaseMs: number;
  /** With a claimed tick: 1 for its first run, 2 for the run that takes over from it, … */
  readonly attempt: number;
  readonly #clock: Clock;
  readonly #firstToken: bigint;
  #nextToken: bigint;
  #currentToken: bigint;
  #tokensLeft: number;
  /** The tokens that follow when those are used up. */
  #moreTokens: TokenBlock | undefined;
  #tokensSinceMs: number;
  #isRequestingTokens = false;
  #hasRunEnded = false;
  #confirmedAt: Moment;
  #validUntilMs: number;
  #latestStoreEndMs: number;
  /** The monotonic time until which an extension may last in the store. */
  #extendedUntilMs = -Infinity;

  constructor({ key, request, granted, sentAt, latestStoreEndMs }: GrantParts, clock: Clock) {
    const { leaseMs, tokenCount = 1 } = request;
    const { fencingToken, attempt = 1 } = granted;
    this.key = key;
    this.request = request;
    this.leaseMs = leaseMs;
    this.attempt = attempt;
    this.#clock = clock;
    this.#firstToken = fencingToken;
    this.#nextToken = fencingToken;
    this.#currentToken = fencingToken;
    this.#tokensLeft = tokenCount;
    this.#tokensSinceMs = sentAt.monotonicMs;
    this.#confirmedAt = sentAt;
    this.#validUntilMs = endOfValidity(sentAt.monotonicMs, leaseMs);
    this.#latestStoreEndMs = latestStoreEndMs;
  }

  /** Whether a tick was claimed with it. */
  get isRun(): boolean {
    return this.request.tick !== undefined;
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
  get latestStoreEndMs(): number {
    return this.#latestStoreEndMs;
  }

  /** How much longer the store may keep the grant, in ms. */
  get lastsForMs(): number {
    return this.#latestStoreEndMs - this.#clock.monotonicMs();
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
    const { key, holder } = this.request;
    if (this.#hasRunEnded) return { key, holder, hasEnded: true };
    return this.#currentToken === this.#firstToken ? { key, holder, usedOneToken: true } : this.request;
  }

  /** Marks the run of the tick as ended, so that no other run takes it over. */
  endRun(): void {
    this.#hasRunEnded = true;
  }

  /** The number of further callers for which it has a fencing token. */
  get tokensLeft(): number {
    return this.#tokensLeft + (this.#moreTokens?.count ?? 0);
  }

  /** The time since the newest tokens were requested, in ms. */
  get tokenAgeMs(): number {
    return this.#clock.monotonicMs() - this.#tokensSinceMs;
  }

  /** The fencing token of the caller that uses it now. */
  get currentToken(): bigint {
    return this.#currentToken;
  }

  /** Returns the next fencing token, larger than all before. */
  takeToken(): bigint {
    const token = this.#nextToken;
    this.#nextToken += 1n;
    this.#tokensLeft -= 1;
    if (this.#tokensLeft === 0 && this.#moreTokens) this.#useTokens(this.#moreTokens);
    this.#currentToken = token;
    return token;
  }

  /** More fencing tokens were requested and have not arrived. */
  get isRequestingTokens(): boolean {
    return this.#isRequestingTokens;
  }

  onTokensRequested(): void {
    this.#isRequestingTokens = true;
  }

  /** Adds fencing tokens that the store reserved, which it does only if no other process waits. */
  addTokens(tokens: TokenBlock, sentAt: Moment): void {
    this.#tokensSinceMs = sentAt.monotonicMs;
    this.#isRequestingTokens = false;
    if (this.#tokensLeft === 0) this.#useTokens(tokens);
    else this.#moreTokens = tokens;
  }

  #useTokens({ first, count }: TokenBlock): void {
    this.#nextToken = first;
    this.#tokensLeft = count;
    this.#moreTokens = undefined;
  }

  /** Whether the token belongs to an earlier caller of this grant, which has handed it over. */
  hasHandedOff(token: bigint): boolean {
    return this.#firstToken <= token && token < this.#currentToken;
  }

  /** Called before a renewal is sent: it may take effect until `endMs`, even if its result is lost. */
  onRenewalSent(leaseMs: number, endMs: number): void {
    this.#latestStoreEndMs = Math.max(this.#latestStoreEndMs, endMs);
    if (leaseMs > this.leaseMs) this.#extendedUntilMs = Math.max(this.#extendedUntilMs, endMs);
  }

  /** Whether the store may keep it for longer than its callers ask for, because one of them has extended it. */
  get isExtended(): boolean {
    return this.#extendedUntilMs - this.#clock.monotonicMs() > this.leaseMs;
  }

  /**
   * Extends the validity from a confirmed request. Results may overtake each other, so neither value goes back. The
   * exception: if the machine slept in between, the old validity was measured by a stopped clock and no longer counts.
   */
  onConfirmed({ sentAt, leaseMs }: ConfirmedRequest): void {
    const validUntilMs = endOfValidity(sentAt.monotonicMs, leaseMs);
    // The wall clock may have been set in the same moment.
    const isNewer = sentAt.monotonicMs >= this.#confirmedAt.monotonicMs;
    if (isNewer && !clocksAgree(this.#confirmedAt, sentAt)) this.#validUntilMs = validUntilMs;
    else this.#validUntilMs = Math.max(this.#validUntilMs, validUntilMs);
    if (isNewer) this.#confirmedAt = sentAt;
  }
}

const endOfValidity = (sentAtMs: number, leaseMs: number) =>
  sentAtMs + leaseMs - Math.max(leaseMs * DRIFT_RATIO, DRIFT_MIN_MS);
