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
  /** Who holds a key, as the store knows it. */
  readonly inspect: (storeKey: string, timeoutMs: number) => Promise<LockRecord | null>;
}

interface RenewParams {
  readonly leaseMs: number;
  readonly timeoutMs: number;
  readonly moreTokens?: number | undefined;
}

/** The locks this process holds: keeps them renewed, gives them back, and empties itself at shutdown. */
export class HeldLocks implements LeaseOperations {
  readonly maxLeaseMs: number | undefined;
  readonly #clock: Clock;
  readonly #events: Events;
  readonly #batcher: Batcher;
  readonly #releaser: Releaser;
  readonly #inspect: HeldLocksParts['inspect'];
  readonly #renewer: Renewer;
  readonly #verifier: LeaseVerifier;
  /** Those under which work runs. */
  readonly #leasesInUse = new Set<Lease>();
  /** Those that shutdown does not wait for. */
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

  /** Takes a grant into keeping, in the same turn in which it arrived. */
  add(grant: Grant, { renew }: { readonly renew: boolean }): Lease {
    const lease = new Lease(grant, this);
    grant.isRenewed = renew;
    // Once closed, nobody looks after it: it lapses by itself.
    if (!this.#isClosed) {
      this.#renewer.add(grant);
      this.#verifier.start();
    }
    return lease;
  }

  /** Another caller has the grant from now on. */
  handOff(grant: Grant): Lease {
    return new Lease(grant, this);
  }

  /** Runs the work and gives the lock back. How the work ended reaches the caller untouched, unless the lock was lost. */
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

  /** Asks for a renewal. The lease has heard the answer when this settles, and hears one that comes later. */
  renew(grant: Grant, leaseMs: number, moreTokens?: number): Promise<RenewResult> {
    const timeoutMs = Math.min(Math.max(leaseMs / 6, MIN_RENEWAL_TIMEOUT_MS), MAX_RENEWAL_TIMEOUT_MS);
    grant.extendLastsUntil(this.#clock.monotonicMs() + MAX_REQUEST_TIMEOUT_MS + leaseMs);
    return this.#sendRenewal(grant, { leaseMs, timeoutMs, moreTokens }, ({ fencingToken }, sentAt) => {
      grant.onConfirmed({ sentAt, leaseMs });
      if (fencingToken !== undefined && moreTokens) grant.addTokens(fencingToken, moreTokens, sentAt);
    });
  }

  /** Asks for so many more fencing tokens, so that the grant may pass on to more callers of this process. */
  requestMoreTokens(grant: Grant, moreTokens: number): void {
    grant.isRequestingTokens = true;
    void this.renew(grant, grant.leaseMs, moreTokens);
  }

  /**
   * Makes sure that the store has not freed the key. As a renewal of the shortest lease it prolongs nothing, so it is no
   * news if the store still has the grant.
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

  /** Neither renews nor releases it from now on, unless its holder gives it back before the lease is over. */
  letLapse({ grant }: Lease): void {
    this.#renewer.stopRenewing(grant);
  }

  /** COMMIT of a transaction that is still open comes after the release. */
  warnOfOpenTransaction(lease: Lease): void {
    if (hasOpenTransaction(lease)) {
      const { key, fencingToken } = lease;
      this.#events.emit('transaction-open', { key, fencingToken });
    }
  }

  release(lease: Lease, onResult: (result: ReleaseResult) => void): void {
    const { grant, key, fencingToken } = lease;
    if (this.#isClosed) {
      const message = `The application has ended, so lock "${key}" cannot be given back: it lapses by itself.`;
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
   * A renewal whose answer was lost may have made it last in the store until long after the loss. Not released at the loss
   * itself, as its work may still run. The lease of a run lapses: whoever takes the run over counts from its end.
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

  /** Asks at once about the grants of this key, instead of at their next renewal. */
  async confirmAll(storeKey: string): Promise<void> {
    await Promise.all(this.#grantsAt(storeKey).map((grant) => this.confirm(grant)));
  }

  /** Waits until all work under locks has ended and all locks are given back; lets go of those that stay. */
  async drain(
    { drainMs, abortGraceMs }: Required<ShutdownOptions>,
    unawaited: readonly Lease[] = [],
  ): Promise<readonly Grant[]> {
    this.#unawaited = new Set(unawaited);
    for (const lease of unawaited) {
      const message =
        `The work under lock "${lease.key}" has itself closed the application, so shutdown does not wait for it. Unless the ` +
        `work ends soon after, the lease lapses.`;
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
    // Released now, a lock could be granted while its work still runs. So it lapses instead.
    const left = this.#dropAll(this.#unawaited);
    this.#unawaited = new Set([...this.#leasesInUse].filter((lease) => !unawaited.includes(lease)));
    return left;
  }

  /** Waits until the work that has itself closed the application has ended and its locks are released, but not longer. */
  async waitForClosingWork(timeoutMs: number): Promise<void> {
    await this.#waitUntilEmpty(timeoutMs);
    await withTimeout(this.#clock, timeoutMs, this.#releaser.whenSettled(), { awaited: true });
  }

  /** Looks after nothing any more, and sends nothing. Whose work still runs is told. */
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

  /** Prolongs nothing: what is left is what the store says. */
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
   * Answers once the release is on its way, unless there is reason to doubt it: until then nobody else had the lock.
   *
   * @throws LockLostError if the work did not have the lock to its end
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
    `Lock "${key}" was no longer ours when the work under it ended, so somebody else may have worked too. ` +
      `Check the fencing token where you write; raise leaseMs if this process pauses for long.`,
    { key },
  );
