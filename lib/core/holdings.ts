import { atMost } from './at-most.js';
import { type LockRecord, type ReleaseAnswer, type RenewAnswer, type Renewed, unknown } from './backend.js';
import { runUnder } from './chain.js';
import type { Agenda } from './agenda.js';
import { type Clock, type Moment, momentOf } from './clock.js';
import { type Courier, LONGEST_LIMIT_MS } from './courier.js';
import { LockLostError, LockShutdownError } from './errors.js';
import type { Events } from './events.js';
import type { GiveBack } from './give-back.js';
import type { Grant, Tenant } from './grant.js';
import { Keeper } from './keeper.js';
import { Lease, type LeaseDesk } from './lease.js';
import { LeaseVerifier } from './lease-verifier.js';
import type { Lock } from './lock.js';
import { NoAnswerInTime } from './no-answer-in-time.js';
import { hasOpenTransaction } from './open-transactions.js';
import { SHORTEST_LEASE_MS, type ShutdownOptions } from './options.js';

const LONGEST_RENEWAL_MS = 2_000;
const SHORTEST_RENEWAL_MS = 50;

interface HoldingsParts {
  readonly clock: Clock;
  readonly agenda: Agenda;
  readonly events: Events;
  readonly courier: Courier;
  readonly giveBack: GiveBack;
  readonly maxLeaseMs: number | undefined;
  /** Who holds a key, as the store knows it. */
  readonly inspect: (storeKey: string, limitMs: number) => Promise<LockRecord | null>;
}

interface Asking {
  readonly leaseMs: number;
  readonly limitMs: number;
  readonly moreTokens?: number | undefined;
}

/** The locks this process holds: keeps them renewed, gives them back, and empties itself at shutdown. */
export class Holdings implements LeaseDesk {
  readonly maxLeaseMs: number | undefined;
  readonly #clock: Clock;
  readonly #events: Events;
  readonly #courier: Courier;
  readonly #giveBack: GiveBack;
  readonly #inspect: HoldingsParts['inspect'];
  readonly #keeper: Keeper;
  readonly #verifier: LeaseVerifier;
  /** Those under which work runs. */
  readonly #working = new Set<Lease>();
  /** Those that shutdown does not wait for. */
  #unawaited: ReadonlySet<Lease> = new Set();
  #releases = 0;
  #isClosed = false;
  #onEmpty: () => void = () => undefined;

  constructor({ clock, agenda, events, courier, giveBack, maxLeaseMs, inspect }: HoldingsParts) {
    this.maxLeaseMs = maxLeaseMs;
    this.#clock = clock;
    this.#events = events;
    this.#courier = courier;
    this.#giveBack = giveBack;
    this.#inspect = inspect;
    const renew = (grant: Grant) => this.renew(grant, grant.leaseMs);
    this.#keeper = new Keeper({ clock, agenda, events, renew });
    const grants = () => this.#keeper.grants;
    this.#verifier = new LeaseVerifier({ clock, agenda, grants, verify: (grant) => this.#askIfHeld(grant) });
  }

  /** Takes a grant into keeping, in the same turn in which it arrived. */
  take(grant: Grant, { renew }: { readonly renew: boolean }): Lease {
    const lease = new Lease(grant, this);
    grant.isRenewed = renew;
    // Once closed, nobody looks after it: it lapses by itself.
    if (!this.#isClosed) {
      this.#keeper.keep(grant);
      this.#verifier.start();
    }
    return lease;
  }

  /** Another caller has the grant from now on. */
  passOn(grant: Grant): Lease {
    return new Lease(grant, this);
  }

  /** Runs the work and gives the lock back. How the work ended reaches the caller untouched, unless the lock was lost. */
  async workUnder<T>(lease: Lease, locks: object, work: (lock: Lock) => T | Promise<T>): Promise<T> {
    this.#working.add(lease);
    try {
      const value = await runUnder({ lease, locks, storeKey: lease.claim.key }, () => work(lease));
      if (lease.isHeld) this.warnOfOpenTransaction(lease);
      await this.#endWork(lease);
      return value;
    } catch (error) {
      if (lease.isHeld) lease.giveBack(ignore);
      else lease.forgo();
      await this.#courier.sent();
      throw error;
    } finally {
      this.#working.delete(lease);
      this.#lookIfEmpty();
    }
  }

  /** Asks for a renewal. The lease has heard the answer when this settles, and hears one that comes later. */
  renew(grant: Grant, leaseMs: number, moreTokens?: number): Promise<RenewAnswer> {
    const limitMs = Math.min(Math.max(leaseMs / 6, SHORTEST_RENEWAL_MS), LONGEST_RENEWAL_MS);
    grant.mayLastUntil(this.#clock.monotonicMs() + LONGEST_LIMIT_MS + leaseMs);
    return this.#askAbout(grant, { leaseMs, limitMs, moreTokens }, ({ fencingToken }, sentAt) => {
      grant.confirmed({ sentAt, leaseMs });
      if (fencingToken !== undefined && moreTokens) grant.addTokens(fencingToken, moreTokens, sentAt);
    });
  }

  /** Asks for so many more fencing tokens, so that the grant may pass on to more callers of this process. */
  prolongTenure(grant: Grant, moreTokens: number): void {
    grant.isTenureAsked = true;
    void this.renew(grant, grant.leaseMs, moreTokens);
  }

  /**
   * Makes sure that the store has not freed the key. As a renewal of the shortest lease it prolongs nothing, so it is no
   * news if the store still has the grant.
   */
  confirm(grant: Grant): Promise<RenewAnswer> {
    return this.#askAbout(grant, { leaseMs: SHORTEST_LEASE_MS, limitMs: LONGEST_RENEWAL_MS });
  }

  verify(grant: Grant): Promise<RenewAnswer> {
    return this.#verifier.verify(grant);
  }

  onDoubt(grant: Grant): void {
    this.#verifier.onDoubt(grant);
  }

  /** Neither renews nor releases it from now on, unless its holder gives it back before the lease is over. */
  letLapse({ grant }: Lease): void {
    this.#keeper.stopRenewing(grant);
  }

  /** COMMIT of a transaction that is still open comes after the release. */
  warnOfOpenTransaction(lease: Lease): void {
    if (hasOpenTransaction(lease)) {
      const { key, fencingToken } = lease;
      this.#events.emit('transaction-open', { key, fencingToken });
    }
  }

  release(lease: Lease, onAnswer: (answer: ReleaseAnswer) => void): void {
    const { grant, key, fencingToken } = lease;
    if (this.#isClosed) {
      const message = `The application has ended, so lock "${key}" cannot be given back: it lapses by itself.`;
      onAnswer(unknown(new LockShutdownError(message, { key })));
      return;
    }
    if (grant.heirs?.takeOver(grant)) {
      this.#events.emit('released', { key, fencingToken });
      onAnswer({ kind: 'released' });
      return;
    }
    this.#keeper.drop(grant);
    this.#releases += 1;
    this.#giveBack.release(grant.farewell, grant.lastsUntilMs, (answer) => {
      this.#releases -= 1;
      grant.heirs?.onEnded(grant, answer);
      if (answer.kind === 'released') this.#events.emit('released', { key, fencingToken });
      if (answer.kind === 'unknown') {
        this.#events.emit('unavailable', { key, operation: 'release', cause: answer.cause });
      }
      this.#lookIfEmpty();
      onAnswer(answer);
    });
  }

  /**
   * A renewal whose answer was lost may have made it last in the store until long after the loss. Not released at the loss
   * itself, as its work may still run. The lease of a run lapses: whoever takes the run over counts from its end.
   */
  forgo({ grant }: Lease): void {
    if (this.#isClosed || grant.isRun || grant.lastsForMs <= 0) return;
    this.#giveBack.release(grant.claim, grant.lastsUntilMs);
  }

  onLost({ grant, key, fencingToken }: Lease, error: LockLostError): void {
    this.#keeper.drop(grant);
    grant.heirs?.onEnded(grant);
    this.#events.emit('lost', { key, fencingToken, error });
    this.#lookIfEmpty();
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
    if (!(await this.#emptyWithin(drainMs))) {
      for (const { key, tenant } of this.#keeper.grants) {
        const message =
          `The application is shutting down, and the work under lock "${key}" did not end in time. ` +
          `End it now, or raise shutdown.drainMs.`;
        tenant?.abort(new LockShutdownError(message, { key }));
      }
      await this.#emptyWithin(abortGraceMs);
    }
    for (const lease of unawaited) this.letLapse(lease);
    // Released now, a lock could be granted while its work still runs. So it lapses instead.
    const left = this.#dropAll(this.#unawaited);
    this.#unawaited = new Set([...this.#working].filter((lease) => !unawaited.includes(lease)));
    return left;
  }

  /** Waits until the work that has itself closed the application has ended and its locks are released, but not longer. */
  async closingWorkEnded(limitMs: number): Promise<void> {
    await this.#emptyWithin(limitMs);
    await atMost(this.#clock, limitMs, this.#giveBack.settled(), { awaited: true });
  }

  /** Looks after nothing any more, and sends nothing. Whose work still runs is told. */
  close(): void {
    this.#isClosed = true;
    this.#verifier.stop();
    for (const { key, tenant } of this.#dropAll()) {
      const message = `The application has ended before the work under lock "${key}".`;
      tenant?.abort(new LockShutdownError(message, { key }));
    }
  }

  async #askIfHeld(grant: Grant): Promise<RenewAnswer> {
    const answer = grant.isRenewed ? await this.renew(grant, grant.leaseMs) : await this.#askHowLong(grant);
    this.#keeper.replan(grant);
    return answer;
  }

  /** Prolongs nothing: what is left is what the store says. */
  async #askHowLong(grant: Grant): Promise<RenewAnswer> {
    if (this.#isClosed)
      return unknown(new LockShutdownError('The application has ended.', { key: grant.key }));
    const { key, holder } = grant.claim;
    const sentAt = momentOf(this.#clock);
    try {
      const asked = this.#inspect(key, LONGEST_RENEWAL_MS);
      if (!(await atMost(this.#clock, LONGEST_RENEWAL_MS, asked))) {
        return unknown(new NoAnswerInTime(LONGEST_RENEWAL_MS));
      }
      const record = await asked;
      if (record?.holder !== holder) return await this.confirm(grant);
      grant.confirmed({ sentAt, leaseMs: record.remainingMs });
      return { kind: 'renewed' };
    } catch (cause) {
      return unknown(cause);
    }
  }

  #askAbout(
    grant: Grant,
    { leaseMs, limitMs, moreTokens }: Asking,
    onRenewed?: (answer: Renewed, sentAt: Moment) => void,
  ): Promise<RenewAnswer> {
    const { key, holder } = grant.claim;
    const hearLate = (answer: RenewAnswer, sentAt: Moment) => {
      if (answer.kind === 'renewed') onRenewed?.(answer, sentAt);
      if (answer.kind === 'lost') grant.tenant?.disowned();
    };
    return new Promise((resolve) => {
      const hear = (answer: RenewAnswer, sentAt: Moment) => {
        hearLate(answer, sentAt);
        resolve(answer);
      };
      this.#courier.send('renew', { request: { key, holder, leaseMs, moreTokens }, limitMs, hear, hearLate });
    });
  }

  #grantsAt(storeKey: string): Grant[] {
    return this.#keeper.grants.filter(({ claim }) => claim.key === storeKey);
  }

  #dropAll(except: ReadonlySet<Tenant> = new Set()): readonly Grant[] {
    const left = this.#keeper.grants.filter(({ tenant }) => !tenant || !except.has(tenant));
    for (const grant of left) this.#keeper.drop(grant);
    return left;
  }

  /**
   * Answers once the release is on its way, unless there is reason to doubt it: until then nobody else had the lock.
   *
   * @throws LockLostError if the work did not have the lock to its end
   */
  async #endWork(lease: Lease): Promise<void> {
    if (lease.isLost) lease.throwIfLost();
    if (!lease.isHeld) return;
    if (lease.isValid()) {
      lease.giveBack((answer) => answer.kind === 'gone' && this.#tellTooLate(lease));
      await this.#courier.sent();
      return;
    }
    const answer = await new Promise<ReleaseAnswer>((resolve) => lease.giveBack(resolve));
    if (answer.kind !== 'released') throw notOurs(lease);
  }

  #tellTooLate(lease: Lease): void {
    const { key, fencingToken } = lease;
    this.#events.emit('lost', { key, fencingToken, error: notOurs(lease) });
  }

  async #emptyWithin(limitMs: number): Promise<boolean> {
    const empty = new Promise<void>((resolve) => (this.#onEmpty = resolve));
    this.#lookIfEmpty();
    return atMost(this.#clock, limitMs, empty, { awaited: true });
  }

  #lookIfEmpty(): void {
    if (this.#releases > 0) return;
    for (const lease of this.#working) if (!this.#unawaited.has(lease)) return;
    if (this.#keeper.count > this.#unawaited.size) return;
    const isOurs = ({ tenant }: Grant) => tenant instanceof Lease && this.#unawaited.has(tenant);
    if (this.#keeper.grants.every(isOurs)) this.#onEmpty();
  }
}

const ignore = () => undefined;

const notOurs = ({ key }: Lease) =>
  new LockLostError(
    `Lock "${key}" was no longer ours when the work under it ended, so somebody else may have worked too. ` +
      `Check the fencing token where you write; raise leaseMs if this process pauses for long.`,
    { key },
  );
