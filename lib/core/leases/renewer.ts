import type { RenewRequest } from '../backend.js';
import type { Renewed, RenewResult } from '../backend-results.js';
import type { LockRecord } from '../lock-record.js';
import { unknownResult } from '../unknown-result.js';
import { type Clock, type Moment, momentOf } from '../clock.js';
import type { Events } from '../events.js';
import { MIN_LEASE_MS } from '../options.js';
import { type Batcher, MAX_REQUEST_TIMEOUT_MS } from '../requests/batcher.js';
import { PendingRequest } from '../requests/pending-request.js';
import { replyWithin } from '../requests/store-timeout.js';
import type { Grant } from './grant.js';

/** A lease is renewed after a third of its length. After a failure it is retried after each twelfth, until it ends. */
const RENEW_AFTER = 1 / 3;
const RETRY_AFTER = 1 / 12;
/** Renewals are delayed by up to this part of the lease, so that locks that were acquired together are spread out. */
const JITTER = 1 / 12;
/** Renewals within this part of the lease are sent in one batch. */
const RENEWAL_STEP = 1 / 64;
/**
 * A delay of the event loop by this part of a lease is published as `stalled`, because the lease is close to its end.
 */
const STALL_THRESHOLD = 1 / 6;
const MAX_RENEWAL_TIMEOUT_MS = 2_000;
const MIN_RENEWAL_TIMEOUT_MS = 50;

interface RenewerParts {
  readonly clock: Clock;
  readonly events: Events;
  readonly batcher: Batcher;
  /** Returns the holder of a key in the store. */
  readonly inspect: (storeKey: string, timeoutMs: number) => Promise<LockRecord | null>;
}

interface RenewParams {
  readonly leaseMs: number;
  readonly timeoutMs: number;
  readonly moreTokens?: number | undefined;
}

/** The store no longer has the grant. */
type OnLost = () => void;

/**
 * Renews and confirms grants at the store. A grant is up to date when the promise of a request settles; it also takes a
 * result that arrives after that.
 */
export class Renewer {
  readonly #parts: RenewerParts;
  #stallPublishedAtMs = -Infinity;

  constructor(parts: RenewerParts) {
    this.#parts = parts;
  }

  renew(grant: Grant, leaseMs: number, onLost: OnLost, moreTokens?: number): Promise<RenewResult> {
    const timeoutMs = Math.min(Math.max(leaseMs / 6, MIN_RENEWAL_TIMEOUT_MS), MAX_RENEWAL_TIMEOUT_MS);
    // The renewal may wait for a lane for all of its timeout before it is sent.
    const latestStoreEndMs = this.#parts.clock.monotonicMs() + timeoutMs + MAX_REQUEST_TIMEOUT_MS + leaseMs;
    grant.onRenewalSent(leaseMs, latestStoreEndMs);
    const params = { leaseMs, timeoutMs, moreTokens };
    return this.#send(grant, params, onLost, ({ fencingToken }, sentAt) => {
      grant.onConfirmed({ sentAt, leaseMs });
      if (fencingToken !== undefined && moreTokens)
        grant.addTokens({ first: fencingToken, count: moreTokens }, sentAt);
    });
  }

  /** Checks that the store still has the grant. Sends a renewal with the shortest lease, which extends nothing. */
  confirm(grant: Grant, onLost: OnLost): Promise<RenewResult> {
    return this.#send(grant, { leaseMs: MIN_LEASE_MS, timeoutMs: MAX_RENEWAL_TIMEOUT_MS }, onLost);
  }

  /** Reads the rest of the lease from the store, without extending it. */
  async readRemaining(grant: Grant, onLost: OnLost): Promise<RenewResult> {
    const { clock, inspect } = this.#parts;
    const { key, holder } = grant.request;
    const sentAt = momentOf(clock);
    try {
      const record = await replyWithin(clock, MAX_RENEWAL_TIMEOUT_MS, (timeoutMs) => inspect(key, timeoutMs));
      if (record?.holder !== holder) return await this.confirm(grant, onLost);
      if (record.isUncertain) return unknownResult(new Error('the store is not certain of the lease'));
      grant.onConfirmed({ sentAt, leaseMs: record.remainingMs });
      return { kind: 'renewed' };
    } catch (cause) {
      return unknownResult(cause);
    }
  }

  /** The monotonic time of the renewal that follows the newest confirmation. */
  dueAtMs({ confirmedAtMs, leaseMs }: Grant): number {
    const atMs = confirmedAtMs + leaseMs * (RENEW_AFTER + Math.random() * JITTER);
    const stepMs = leaseMs * RENEWAL_STEP;
    return Math.ceil(atMs / stepMs) * stepMs;
  }

  /** The monotonic time of the next try after a failure. */
  retryAtMs({ leaseMs }: Grant): number {
    return this.#parts.clock.monotonicMs() + leaseMs * RETRY_AFTER * (0.5 + Math.random() / 2);
  }

  /** Publishes a blocked event loop once, not once for each grant that it delayed. */
  detectStall({ leaseMs }: Grant, lateMs: number, held: number): void {
    const { clock, events } = this.#parts;
    const nowMs = clock.monotonicMs();
    if (lateMs < leaseMs * STALL_THRESHOLD || nowMs - this.#stallPublishedAtMs < lateMs) return;
    this.#stallPublishedAtMs = nowMs;
    events.emit('stalled', { lateMs, leaseMs, held });
  }

  #send(
    { request: { key, holder } }: Grant,
    { leaseMs, timeoutMs, moreTokens }: RenewParams,
    onLost: OnLost,
    onRenewed?: OnRenewed,
  ): Promise<RenewResult> {
    const request = { key, holder, leaseMs, moreTokens };
    return new Promise((resolve) =>
      this.#parts.batcher.send(new Renewal(request, timeoutMs, { resolve, onLost, onRenewed })),
    );
  }
}

type OnRenewed = (result: Renewed, sentAt: Moment) => void;

interface RenewalListener {
  readonly resolve: (result: RenewResult) => void;
  readonly onLost: OnLost;
  readonly onRenewed: OnRenewed | undefined;
}

class Renewal extends PendingRequest<'renew'> {
  readonly #listener: RenewalListener;

  constructor(request: RenewRequest, timeoutMs: number, listener: RenewalListener) {
    super('renew', request, timeoutMs);
    this.#listener = listener;
  }

  protected onResult(result: RenewResult, sentAt: Moment): void {
    this.onLateResult(result, sentAt);
    this.#listener.resolve(result);
  }

  protected override onLateResult(result: RenewResult, sentAt: Moment): void {
    const { onRenewed, onLost } = this.#listener;
    if (result.kind === 'renewed') onRenewed?.(result, sentAt);
    if (result.kind === 'lost') onLost();
  }
}
