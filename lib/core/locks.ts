import { setMaxListeners } from 'node:events';
import { atMost } from './at-most.js';
import type { LockBackend, LockRecord, TickClaim } from './backend.js';
import { heldInChain, holdsInChain, leasesInChain, runUnder } from './chain.js';
import { type Clock, systemClock } from './clock.js';
import { Courier } from './courier.js';
import { LockShutdownError } from './errors.js';
import type { Events } from './events.js';
import { GiveBack } from './give-back.js';
import { Grant } from './grant.js';
import { Grants, type NotGranted } from './grants.js';
import { Holdings } from './holdings.js';
import { JoinedLock } from './joined-lock.js';
import { checkKey, jobStoreKey, leaderStoreKey, lockStoreKey, notesStoreKey, partStoreKeys } from './key.js';
import { Lease } from './lease.js';
import type { Lock } from './lock.js';
import { NoAnswerInTime } from './no-answer-in-time.js';
import {
  type AcquireOptions,
  type ResolvedLockOptions,
  type ShutdownOptions,
  checkAcquireOptions,
  resolveLockOptions,
} from './options.js';
import { setImmediate } from './real-time.js';
import {
  type TransactionSource,
  isInTransaction,
  noteTransaction,
  transactionsOf,
} from './open-transactions.js';
import { reentry, unavailable } from './refusals.js';
import { Agenda } from './agenda.js';
import { Lines } from './lines.js';
import { type LockInfo, Records } from './records.js';

interface LocksParts {
  readonly backend: LockBackend;
  readonly namespace: string;
  /** Shown by `inspect()` as the one who holds. */
  readonly instance: string;
  readonly defaults: ResolvedLockOptions;
  readonly events: Events;
}

/** What is asked for when a tick is claimed. */
export interface TickWish {
  readonly tick: TickClaim;
  readonly leaseMs?: number | undefined;
  readonly storeKey?: string | undefined;
}

const NONE: AcquireOptions = {};
const LONGEST_FAREWELL_MS = 1_000;

/** What one process asks of one backend: locks, claims of ticks, and who holds what. */
export class Locks {
  readonly clock: Clock;
  readonly events: Events;
  readonly #parts: LocksParts;
  readonly #courier: Courier;
  readonly #giveBack: GiveBack;
  readonly #holdings: Holdings;
  readonly #grants: Grants;
  readonly #lines: Lines;
  readonly #records: Records;
  readonly #agenda: Agenda;
  readonly #dataSources = new Set<TransactionSource>();
  readonly #stopping = new AbortController();
  readonly #stopListening: readonly ((() => void) | undefined)[];
  /** Settles when those who waited have been sent away. */
  #sentAway = Promise.resolve();
  #draining: Promise<readonly string[]> | undefined;
  /** How long the store stays open for work that has itself closed the application. */
  #closingWorkMs: number | undefined;

  constructor(parts: LocksParts) {
    const { backend, events, instance } = parts;
    const clock = backend.clock ?? systemClock;
    const agenda = new Agenda(clock);
    const courier = new Courier({ backend, clock, agenda });
    const giveBack = new GiveBack({ courier, clock, agenda });
    const { maxLeaseMs } = backend;
    const inspect = (storeKey: string, limitMs: number) => backend.inspect(storeKey, limitMs);
    const holdings = new Holdings({ clock, agenda, events, courier, giveBack, maxLeaseMs, inspect });
    const grants = new Grants({ clock, events, courier, giveBack });
    const patience = new Agenda(clock, { awaited: true });
    const lines = new Lines({ clock, agenda: patience, events, grants, giveBack, holdings, instance });
    // Each job that sleeps listens.
    setMaxListeners(0, this.stopping);
    this.clock = clock;
    this.events = events;
    this.#parts = parts;
    this.#courier = courier;
    this.#giveBack = giveBack;
    this.#holdings = holdings;
    this.#grants = grants;
    this.#lines = lines;
    this.#records = new Records({ backend, clock, events, lines, stopping: this.stopping });
    this.#agenda = agenda;
    this.#stopListening = [
      backend.onFreed?.((freed) => lines.wake(freed)),
      backend.onServerNews?.(({ fault, ...news }) => {
        if (fault === undefined) events.emit('server-back', news);
        else events.emit('server-away', { ...news, fault });
      }),
    ];
  }

  get namespace(): string {
    return this.#parts.namespace;
  }

  /** The longest lease that the store can keep, where there is one. */
  get maxLeaseMs(): number | undefined {
    return this.#parts.backend.maxLeaseMs;
  }

  /** How this process is called by `inspect()`. */
  get instance(): string {
    return this.#parts.instance;
  }

  /** Aborts when shutdown begins, with a `LockShutdownError`. */
  get stopping(): AbortSignal {
    return this.#stopping.signal;
  }

  async acquire(key: string, options: AcquireOptions = NONE): Promise<Lease | JoinedLock> {
    const transactions = transactionsOf(this.#dataSources);
    const lock = await this.#acquire(key, options);
    for (const transaction of transactions) noteTransaction(lock, transaction);
    return lock;
  }

  async #acquire(key: string, options: AcquireOptions): Promise<Lease | JoinedLock> {
    const { joined, wish } = this.#begin(key, options);
    return joined ?? this.#lines.stand(wish);
  }

  async tryAcquire(key: string, options: AcquireOptions = NONE): Promise<Lock | null> {
    const transactions = transactionsOf(this.#dataSources);
    const { joined, wish } = this.#begin(key, options);
    if (joined) return joined;
    const answer = await this.#lines.askOnce(wish);
    if (answer instanceof Lease) {
      for (const transaction of transactions) noteTransaction(answer, transaction);
      return answer;
    }
    if (answer.kind === 'unknown') throw unavailable(key, answer.cause);
    return null;
  }

  async withLock<T>(key: string, options: AcquireOptions, work: (lock: Lock) => T | Promise<T>): Promise<T> {
    const isTooLate = isInTransaction(this.#dataSources);
    const lock = await this.#acquire(key, options);
    if (lock instanceof Lease) {
      if (isTooLate) this.events.emit('transaction-open', { key, fencingToken: lock.fencingToken });
      return await this.workUnder(lock, work);
    }
    try {
      const value = await work(lock);
      lock.throwIfEnded();
      return value;
    } finally {
      await lock.release();
    }
  }

  /** Runs the work under a lock that is held already, and gives it back. */
  workUnder<T>(lease: Lease, work: (lock: Lock) => T | Promise<T>): Promise<T> {
    return this.#holdings.workUnder(lease, this, work);
  }

  /** Has locks that are acquired in an open transaction of this source noticed. Returns how to end that. */
  watchTransactions(source: TransactionSource): () => void {
    this.#dataSources.add(source);
    return () => this.#dataSources.delete(source);
  }

  /** How long to wait for a lock where the caller does not say. */
  get defaultWaitMs(): number {
    return this.#parts.defaults.waitMs;
  }

  /** How long a run of a job lasts unless it is renewed, where the job does not say. */
  get defaultLeaseMs(): number {
    return this.#parts.defaults.leaseMs;
  }

  /**
   * Claims a tick of a job for this process; the lease that comes with it says that the run is on. `storeKey` is that of
   * a part of the job, where such parts may run side by side. Without a tick it claims the run alone.
   */
  async claimTick(job: string, { tick, leaseMs, storeKey }: Partial<TickWish>): Promise<Lease | NotGranted> {
    const { namespace, instance, defaults } = this.#parts;
    const answer = await this.#grants.claim({
      key: job,
      request: {
        key: storeKey ?? jobStoreKey(namespace, job),
        holder: this.#grants.newHolder(),
        leaseMs: leaseMs ?? defaults.leaseMs,
        instance,
        ...(tick && { tick }),
      },
      // A claim is not repeated later, so its answer is worth waiting for.
      waitMs: Infinity,
    });
    if (!(answer instanceof Grant)) return answer;
    const lease = this.#holdings.take(answer, { renew: true });
    lease.purpose = 'run';
    return lease;
  }

  /** Whether this asynchronous chain is part of a run of the job. */
  isRunning(job: string): boolean {
    const { namespace } = this.#parts;
    const [whole, parts] = [jobStoreKey(namespace, job), partStoreKeys(namespace, job)];
    return holdsInChain(this, (storeKey) => storeKey === whole || storeKey.startsWith(parts));
  }

  /** Notes how a run of a job goes. What goes wrong is published. */
  note(job: string, text: string): Promise<void> {
    return this.#records.note(job, notesStoreKey(this.#parts.namespace, job), text);
  }

  /** What was noted about the runs of a job, the newest first. */
  notes(job: string): Promise<readonly string[]> {
    return this.#records.notes(job, notesStoreKey(this.#parts.namespace, job));
  }

  /** Who runs a job, or a part of it, as the store knows it. */
  runOf(job: string, storeKey = jobStoreKey(this.#parts.namespace, job)): Promise<LockRecord | null> {
    return this.#records.recordAt(job, storeKey);
  }

  /** Stands in line for the leadership of an election, for as long as it takes. */
  async standFor(
    election: string,
    { leaseMs, signal }: { readonly leaseMs: number; readonly signal: AbortSignal },
  ): Promise<Lease> {
    this.#throwIfStopping();
    signal.throwIfAborted();
    const storeKey = leaderStoreKey(this.#parts.namespace, election);
    const wish = { key: election, storeKey, signal, leaseMs, waitMs: Infinity, renew: true };
    const lease = await this.#lines.stand(wish);
    lease.purpose = 'term';
    return lease;
  }

  /** Who leads, as the store knows it. */
  leaderOf(election: string): Promise<LockInfo | null> {
    return this.#records.lockAt(election, leaderStoreKey(this.#parts.namespace, election));
  }

  /** Whether this asynchronous chain is part of what the leader does. */
  isLeading(election: string): boolean {
    return heldInChain(this, leaderStoreKey(this.#parts.namespace, election)) !== undefined;
  }

  /** Runs the work under a lock that somebody else gives back. */
  async runUnder<T>(lease: Lease, work: () => T | Promise<T>): Promise<T> {
    return runUnder({ lease, locks: this, storeKey: lease.claim.key }, work);
  }

  /** Renews it no more: unless it is given back before, it lapses. */
  letLapse(lease: Lease): void {
    this.#holdings.letLapse(lease);
  }

  async inspect(key: string): Promise<LockInfo | null> {
    checkKey(key);
    return this.#records.lockAt(key, this.#storeKey(key));
  }

  async forceRelease(key: string, fencingToken: bigint): Promise<boolean> {
    checkKey(key);
    return this.#records.forceRelease(key, this.#storeKey(key), fencingToken);
  }

  /** Looks at the store once, for the boot. */
  async check(limitMs: number): Promise<void> {
    const checked = this.#parts.backend.check?.(limitMs);
    if (checked && !(await atMost(this.clock, limitMs, checked))) throw new NoAnswerInTime(limitMs);
  }

  /** What the backend advises; nothing where it does not say so in time. */
  async advice(limitMs: number): Promise<string | undefined> {
    const advice = this.#parts.backend.advice?.(limitMs).catch(() => undefined);
    return advice && (await atMost(this.clock, limitMs, advice)) ? advice : undefined;
  }

  /** Asks the store at once whether what this process holds of the key is still ours; if not, it is lost. */
  confirmHeld(key: string): Promise<void> {
    return this.#holdings.confirmAll(this.#storeKey(key));
  }

  /** Refuses everybody who asks, and sends away everybody who waits. What is held stays held and renewed. */
  stopGranting(): void {
    if (this.#stopping.signal.aborted) return;
    this.events.emit('shutdown', { phase: 'draining', left: 0 });
    const reason = new LockShutdownError('The application is shutting down: no lock is granted any more.');
    this.#stopping.abort(reason);
    // What was asked for in this same turn of the event loop may still be granted.
    this.#sentAway = new Promise((resolve) =>
      setImmediate(() => {
        this.#lines.sendAllAway(reason);
        resolve();
      }),
    );
  }

  /** Lets the work under locks end, and answers the keys of those that were not given back. */
  drain(limits: Required<ShutdownOptions>): Promise<readonly string[]> {
    // Work that awaits the end of the application would wait for itself.
    this.#draining ??= this.#drain(limits, leasesInChain(this));
    return this.#draining;
  }

  async close(): Promise<void> {
    this.stopGranting();
    this.#lines.sendAllAway(this.#stopping.signal.reason);
    if (this.#closingWorkMs === undefined) return this.#end();
    // That work awaits this, so it ends later. Nobody is left to hear how the connections were closed.
    void this.#endAfterWork(this.#closingWorkMs).catch(() => undefined);
  }

  async #endAfterWork(limitMs: number): Promise<void> {
    await this.#holdings.closingWorkEnded(limitMs);
    await atMost(this.clock, limitMs, this.#records.settled(), { awaited: true });
    await this.#end();
  }

  async #end(): Promise<void> {
    this.#records.close();
    for (const stop of this.#stopListening) stop?.();
    this.#courier.close();
    this.#giveBack.stop();
    this.#grants.close();
    this.#holdings.close();
    this.#agenda.tidy();
    await this.#parts.backend.close();
  }

  async #drain(
    { drainMs, abortGraceMs }: Required<ShutdownOptions>,
    ownLeases: readonly Lease[],
  ): Promise<readonly string[]> {
    this.stopGranting();
    const startedAtMs = this.clock.monotonicMs();
    // Or the end could come before they have left the line of the store.
    await this.#sentAway;
    // What was asked for before may still be granted: it is then given back, or its work drains with the rest.
    await this.#grants.settled(Math.max(drainMs, LONGEST_FAREWELL_MS));
    const leftMs = Math.max(startedAtMs + drainMs - this.clock.monotonicMs(), 0);
    const left = await this.#holdings.drain({ drainMs: leftMs, abortGraceMs }, ownLeases);
    if (ownLeases.length > 0) this.#closingWorkMs = Math.max(abortGraceMs, LONGEST_FAREWELL_MS);
    const farewell = Promise.all([this.#giveBack.settled(), this.#records.settled()]);
    await atMost(this.clock, LONGEST_FAREWELL_MS, farewell, { awaited: true });
    this.events.emit('shutdown', { phase: 'done', left: left.length });
    return left.map((grant) => grant.key);
  }

  #begin(key: string, options: AcquireOptions) {
    checkKey(key);
    if (options !== NONE) checkAcquireOptions(options, this.maxLeaseMs);
    this.#throwIfStopping();
    const { signal, reentrant = false } = options;
    signal?.throwIfAborted();
    const storeKey = this.#storeKey(key);
    const outer = heldInChain(this, storeKey);
    if (outer?.isLost) outer.throwIfLost();
    const isHeld = outer?.isHeld ?? false;
    if (isHeld && !reentrant) throw reentry(key);
    return {
      joined: outer && isHeld ? this.#join(outer) : undefined,
      wish: { key, storeKey, signal, ...resolveLockOptions(options, this.#parts.defaults) },
    };
  }

  #join(outer: Lease): JoinedLock {
    const { key, fencingToken } = outer;
    return new JoinedLock(outer, (error) => this.events.emit('lost', { key, fencingToken, error }));
  }

  #storeKey(key: string): string {
    return lockStoreKey(this.#parts.namespace, key);
  }

  #throwIfStopping(): void {
    this.#stopping.signal.throwIfAborted();
  }
}
