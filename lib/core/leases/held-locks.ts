import {
  type LockRecord,
  type ReleaseResult,
  type RenewResult,
  type Renewed,
  unknownResult,
} from '../backend.js';
import { type Clock, type Moment, momentOf } from '../clock.js';
import { LockLostError, LockShutdownError } from '../errors.js';
import type { Events } from '../events.js';
import type { Lock } from '../lock.js';
import { runWithLock } from '../lock-context.js';
import { hasOpenTransaction } from '../open-transactions.js';
import { type ShutdownOptions, MIN_LEASE_MS } from '../options.js';
import { type Batcher, MAX_REQUEST_TIMEOUT_MS } from '../requests/batcher.js';
import { StoreTimeoutError } from '../requests/store-timeout-error.js';
import { withTimeout } from '../requests/with-timeout.js';
import type { TimerWheel } from '../timer-wheel.js';
import type { CurrentLease, Grant } from './grant.js';
import { type LeaseOperations, Lease } from './lease.js';
import { LeaseVerifier } from './lease-verifier.js';
import type { Releaser } from './releaser.js';
import { Renewer } from './renewer.js';

const MAX_RENEWAL_TIMEOUT_MS = 2_000;
const MIN_RENEWAL_TIMEOUT_MS = 50;

interface HeldLocksParts {
  readonly clock: Clock;
  readonly timerWheel: TimerWheel;
  readonly events: Events;
  readonly batcher: Batcher;
  readonly releaser: Releaser;
  readonly maxLeaseMs: number | undefined;
  /** Returns the holder of a key in the store. */
  readonly inspect: (storeKey: string, timeoutMs: number) => Promise<LockRecord | null>;
}

interface RenewParams {
  readonly leaseMs: number;
  readonly timeoutMs: number;
  readonly moreTokens?: number | undefined;
}

/** The locks that this process holds. Renews and releases them, and drains them at shutdown. */
export class HeldLocks implements LeaseOperations {
  readonly maxLeaseMs: number | undefined;
  readonly #clock: Clock;
  readonly #events: Events;
  readonly #batcher: Batcher;
  readonly #releaser: Releaser;
  readonly #inspect: HeldLocksParts['inspect'];
  readonly #renewer: Renewer;
  readonly #verifier: LeaseVerifier;
  /** The leases under which work runs. */
  readonly #leasesInUse = new Set<Lease>();
  /** The leases that shutdown does not wait for. */
  #unawaited: ReadonlySet<Lease> = new Set();
  #releasesInFlight = 0;
  #isClosed = false;
  #onEmpty: () => void = () => undefined;

  constructor({ clock, timerWheel, events, batcher, releaser, maxLeaseMs, inspect }: HeldLocksParts) {
    this.maxLeaseMs = maxLeaseMs;
    this.#clock = clock;
    this.#events = events;
    this.#batcher = batcher;
    this.#releaser = releaser;
    this.#inspect = inspect;
    const renew = (grant: Grant) => this.renew(grant, grant.leaseMs);
    this.#renewer = new Renewer({ clock, timerWheel, events, renew });
    const grants = () => this.#renewer.grants;
    this.#verifier = new LeaseVerifier({
      clock,
      timerWheel,
      grants,
      verify: (grant) => this.#verifyGrant(grant),
    });
  }

  /** Adds a grant. Must be called in the turn of the event loop in which the grant arrived. */
  add(grant: Grant, { renew }: { readonly renew: boolean }): Lease {
    const lease = new Lease(grant, this);
    grant.isRenewed = renew;
    // After close() nothing renews or releases it, so it expires.
    if (!this.#isClosed) {
      this.#renewer.add(grant);
      this.#verifier.start();
    }
    return lease;
  }

  /** Creates the lease of the next caller of the grant. */
  handOff(grant: Grant): Lease {
    return new Lease(grant, this);
  }

  /**
   * Runs the work and releases the lock. Returns the result of the work or rejects with its error.
   *
   * @throws LockLostError if the work succeeded, but did not have the lock until its end
   */
  async runAndRelease<T>(lease: Lease, locks: object, work: (lock: Lock) => T | Promise<T>): Promise<T> {
    this.#leasesInUse.add(lease);
    try {
      const value = await runWithLock({ lease, locks, storeKey: lease.claim.key }, () => work(lease));
      if (lease.isHeld) this.warnOfOpenTransaction(lease);
      await this.#releaseAfterWork(lease);
      return value;
    } catch (error) {
      if (lease.isHeld) lease.startRelease(ignore);
      else lease.releaseLost();
      await this.#batcher.whenSent();
      throw error;
    } finally {
      this.#leasesInUse.delete(lease);
      this.#checkEmpty();
    }
  }

  /** Renews the grant. It is up to date when the promise settles, and also takes a result that arrives after that. */
  renew(grant: Grant, leaseMs: number, moreTokens?: number): Promise<RenewResult> {
    const timeoutMs = Math.min(Math.max(leaseMs / 6, MIN_RENEWAL_TIMEOUT_MS), MAX_RENEWAL_TIMEOUT_MS);
    grant.extendLastsUntil(this.#clock.monotonicMs() + MAX_REQUEST_TIMEOUT_MS + leaseMs);
    return this.#sendRenewal(grant, { leaseMs, timeoutMs, moreTokens }, ({ fencingToken }, sentAt) => {
      grant.onConfirmed({ sentAt, leaseMs });
      if (fencingToken !== undefined && moreTokens) grant.addTokens(fencingToken, moreTokens, sentAt);
    });
  }

  /** Requests more fencing tokens, so that the grant can be handed over to more callers of this process. */
  requestMoreTokens(grant: Grant, moreTokens: number): void {
    grant.isRequestingTokens = true;
    void this.renew(grant, grant.leaseMs, moreTokens);
  }

  /**
   * Checks that the store still has the grant, and marks the lease as lost if not. Sends a renewal with the shortest
   * lease, which extends nothing.
   */
  confirm(grant: Grant): Promise<RenewResult> {
    return this.#sendRenewal(grant, { leaseMs: MIN_LEASE_MS, timeoutMs: MAX_RENEWAL_TIMEOUT_MS });
  }

  verify(grant: Grant): Promise<RenewResult> {
    return this.#verifier.verify(grant);
  }

  onClocksDisagree(grant: Grant): void {
    this.#verifier.onClocksDisagree(grant);
  }

  /** Stops the renewal. The lease expires, unless its holder releases it before. */
  letLapse({ grant }: Lease): void {
    this.#renewer.stopRenewing(grant);
  }

  /** Warns if a transaction is open that was used under the lock: its COMMIT comes after the release. */
  warnOfOpenTransaction(lease: Lease): void {
    if (hasOpenTransaction(lease)) {
      const { key, fencingToken } = lease;
      this.#events.emit('transaction-open', { key, fencingToken });
    }
  }

  release(lease: Lease, onResult: (result: ReleaseResult) => void): void {
    const { grant, key, fencingToken } = lease;
    if (this.#isClosed) {
      const message = `Cannot release lock "${key}": the application has ended. The lease ends by itself.`;
      onResult(unknownResult(new LockShutdownError(message, { key })));
      return;
    }
    if (grant.waitQueue?.tryHandOff(grant)) {
      this.#events.emit('released', { key, fencingToken });
      onResult({ kind: 'released' });
      return;
    }
    this.#renewer.remove(grant);
    this.#releasesInFlight += 1;
    this.#releaser.release(grant.releaseRequest, grant.lastsUntilMs, (result) => {
      this.#releasesInFlight -= 1;
      grant.waitQueue?.onGrantEnded(grant, result);
      if (result.kind === 'released') this.#events.emit('released', { key, fencingToken });
      if (result.kind === 'unknown') {
        this.#events.emit('unavailable', { key, operation: 'release', cause: result.cause });
      }
      this.#checkEmpty();
      onResult(result);
    });
  }

  /**
   * Releases a lost lease after its work has ended. A renewal whose result was lost may have extended it in the store
   * until long after the loss. It is not released at the loss itself, because its work may still run. The lease of a
   * job run is left to expire: the process that takes the run over counts from its end.
   */
  releaseLost({ grant }: Lease): void {
    if (this.#isClosed || grant.isRun || grant.lastsForMs <= 0) return;
    this.#releaser.release(grant.claim, grant.lastsUntilMs);
  }

  onLost({ grant, key, fencingToken }: Lease, error: LockLostError): void {
    this.#renewer.remove(grant);
    grant.waitQueue?.onGrantEnded(grant);
    this.#events.emit('lost', { key, fencingToken, error });
    this.#checkEmpty();
  }

  /** Confirms the grants of this key at once, instead of at their next renewal. */
  async confirmAll(storeKey: string): Promise<void> {
    await Promise.all(this.#grantsAt(storeKey).map((grant) => this.confirm(grant)));
  }

  /**
   * Waits until all work under locks has ended and all locks are released. After `drainMs` it aborts the signals of the
   * rest, and after `abortGraceMs` more it stops renewing them. Returns the grants that were not released.
   */
  async drain(
    { drainMs, abortGraceMs }: Required<ShutdownOptions>,
    unawaited: readonly Lease[] = [],
  ): Promise<readonly Grant[]> {
    this.#unawaited = new Set(unawaited);
    for (const lease of unawaited) {
      const message =
        `The work under lock "${lease.key}" closed the application itself, so shutdown does not wait for it. If the work ` +
        `does not end soon, its lease expires while it runs.`;
      lease.abort(new LockShutdownError(message, { key: lease.key }));
    }
    if (!(await this.#waitUntilEmpty(drainMs))) {
      for (const { key, currentLease } of this.#renewer.grants) {
        const message =
          `The application is shutting down, and the work under lock "${key}" did not end in time. ` +
          `End it now, or raise shutdown.drainMs.`;
        currentLease?.abort(new LockShutdownError(message, { key }));
      }
      await this.#waitUntilEmpty(abortGraceMs);
    }
    for (const lease of unawaited) this.letLapse(lease);
    // A release now would let another process acquire a lock whose work still runs. So the lease is left to expire.
    const left = this.#dropAll(this.#unawaited);
    this.#unawaited = new Set([...this.#leasesInUse].filter((lease) => !unawaited.includes(lease)));
    return left;
  }

  /** Waits until the work that closed the application has ended and its locks are released, but at most `timeoutMs`. */
  async waitForClosingWork(timeoutMs: number): Promise<void> {
    await this.#waitUntilEmpty(timeoutMs);
    await withTimeout(this.#clock, timeoutMs, this.#releaser.whenSettled(), { awaited: true });
  }

  /** Renews, releases and sends nothing from now on. Aborts the signals of work that still runs. */
  close(): void {
    this.#isClosed = true;
    this.#verifier.stop();
    for (const { key, currentLease } of this.#dropAll()) {
      const message = `The application has ended before the work under lock "${key}".`;
      currentLease?.abort(new LockShutdownError(message, { key }));
    }
  }

  async #verifyGrant(grant: Grant): Promise<RenewResult> {
    const result = grant.isRenewed
      ? await this.renew(grant, grant.leaseMs)
      : await this.#readRemainingLease(grant);
    this.#renewer.reschedule(grant);
    return result;
  }

  /** Reads the rest of the lease from the store, without extending it. */
  async #readRemainingLease(grant: Grant): Promise<RenewResult> {
    if (this.#isClosed)
      return unknownResult(new LockShutdownError('The application has ended.', { key: grant.key }));
    const { key, holder } = grant.claim;
    const sentAt = momentOf(this.#clock);
    try {
      const request = this.#inspect(key, MAX_RENEWAL_TIMEOUT_MS);
      if (!(await withTimeout(this.#clock, MAX_RENEWAL_TIMEOUT_MS, request))) {
        return unknownResult(new StoreTimeoutError(MAX_RENEWAL_TIMEOUT_MS));
      }
      const record = await request;
      if (record?.holder !== holder) return await this.confirm(grant);
      grant.onConfirmed({ sentAt, leaseMs: record.remainingMs });
      return { kind: 'renewed' };
    } catch (cause) {
      return unknownResult(cause);
    }
  }

  #sendRenewal(
    grant: Grant,
    { leaseMs, timeoutMs, moreTokens }: RenewParams,
    onRenewed?: (result: Renewed, sentAt: Moment) => void,
  ): Promise<RenewResult> {
    const { key, holder } = grant.claim;
    const onLateResult = (result: RenewResult, sentAt: Moment) => {
      if (result.kind === 'renewed') onRenewed?.(result, sentAt);
      if (result.kind === 'lost') grant.currentLease?.onGrantLost();
    };
    return new Promise((resolve) => {
      const onResult = (result: RenewResult, sentAt: Moment) => {
        onLateResult(result, sentAt);
        resolve(result);
      };
      this.#batcher.send('renew', {
        request: { key, holder, leaseMs, moreTokens },
        timeoutMs,
        onResult,
        onLateResult,
      });
    });
  }

  #grantsAt(storeKey: string): Grant[] {
    return this.#renewer.grants.filter(({ claim }) => claim.key === storeKey);
  }

  #dropAll(except: ReadonlySet<CurrentLease> = new Set()): readonly Grant[] {
    const left = this.#renewer.grants.filter(
      ({ currentLease }) => !currentLease || !except.has(currentLease),
    );
    for (const grant of left) this.#renewer.remove(grant);
    return left;
  }

  /**
   * Resolves when the release was sent if the lease is valid: then no other process had the lock until now. If the
   * lease is in doubt, it waits for the result.
   *
   * @throws LockLostError if the work did not have the lock until its end
   */
  async #releaseAfterWork(lease: Lease): Promise<void> {
    if (lease.isLost) lease.throwIfLost();
    if (!lease.isHeld) return;
    if (lease.isValid()) {
      lease.startRelease((result) => result.kind === 'gone' && this.#publishLost(lease));
      await this.#batcher.whenSent();
      return;
    }
    const result = await new Promise<ReleaseResult>((resolve) => lease.startRelease(resolve));
    if (result.kind !== 'released') throw lostDuringWorkError(lease);
  }

  #publishLost(lease: Lease): void {
    const { key, fencingToken } = lease;
    this.#events.emit('lost', { key, fencingToken, error: lostDuringWorkError(lease) });
  }

  async #waitUntilEmpty(timeoutMs: number): Promise<boolean> {
    const empty = new Promise<void>((resolve) => (this.#onEmpty = resolve));
    this.#checkEmpty();
    return withTimeout(this.#clock, timeoutMs, empty, { awaited: true });
  }

  #checkEmpty(): void {
    if (this.#releasesInFlight > 0) return;
    for (const lease of this.#leasesInUse) if (!this.#unawaited.has(lease)) return;
    if (this.#renewer.count > this.#unawaited.size) return;
    const isUnawaited = ({ currentLease }: Grant) =>
      currentLease instanceof Lease && this.#unawaited.has(currentLease);
    if (this.#renewer.grants.every(isUnawaited)) this.#onEmpty();
  }
}

const ignore = () => undefined;

const lostDuringWorkError = ({ key }: Lease) =>
  new LockLostError(
    `Lock "${key}" was lost before the work under it ended, so another holder may have worked at the same time. ` +
      `Check the fencing token where you write; raise leaseMs if this process pauses for long.`,
    { key },
  );
