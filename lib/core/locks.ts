import { randomBytes } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { Asker } from './asker.js';
import { atMost } from './at-most.js';
import type { AcquireAnswer, Granted, LockBackend, TickClaim, Unknown } from './backend.js';
import { heldInChain } from './chain.js';
import { type Clock, systemClock } from './clock.js';
import { Courier, NoAnswerInTime } from './courier.js';
import {
  LockError,
  LockReentryError,
  LockShutdownError,
  LockTimeoutError,
  LockUnavailableError,
} from './errors.js';
import type { Events } from './events.js';
import { GiveBack } from './give-back.js';
import { Holdings, type ShutdownOptions } from './holdings.js';
import { JoinedLock } from './joined-lock.js';
import { checkKey, jobKey, storeKey } from './key.js';
import { Lease } from './lease.js';
import type { Lock } from './lock.js';
import {
  type AcquireOptions,
  type ResolvedLockOptions,
  checkAcquireOptions,
  resolveLockOptions,
} from './options.js';

export interface LocksSettings {
  readonly backend: LockBackend;
  readonly namespace: string;
  /** Shown by `inspect()` as the one who holds. */
  readonly instance: string;
  readonly defaults: ResolvedLockOptions;
  readonly events: Events;
}

/** Who holds a key, as the store knows it. */
export interface LockInfo {
  readonly key: string;
  readonly holder: string;
  /** The instance that holds it, as named in its module's options. */
  readonly instance: string;
  /** By the store's clock. */
  readonly since: Date;
  readonly remainingMs: number;
  readonly fencingToken: bigint;
  /** How many wait for it in this process. */
  readonly waiting: number;
}

/** Why a claim was not granted. */
export type NotGranted = Exclude<AcquireAnswer, Granted>;

interface Ask {
  /** The key as its user knows it. */
  readonly key: string;
  readonly storeKey: string;
  readonly holder: string;
  readonly leaseMs: number;
  readonly renew: boolean;
  readonly patienceMs: number;
  readonly tick?: TickClaim;
}

/** Nobody should wait longer for a store's answer, however long the lease. */
const LONGEST_ANSWER_MS = 5_000;
/** Even who does not wait for the lock waits so long for the answer. */
const SHORTEST_PATIENCE_MS = 1_000;

/** Pauses between two looks at a taken key grow from the first to the second. */
const SHORTEST_PAUSE_MS = 10;
const LONGEST_PAUSE_MS = 250;

const LONGEST_FAREWELL_MS = 1_000;

/** What one process asks of one backend: locks, claims of ticks, and who holds what. */
export class Locks {
  readonly clock: Clock;
  readonly events: Events;
  readonly defaults: ResolvedLockOptions;
  readonly #backend: LockBackend;
  readonly #namespace: string;
  readonly #instance: string;
  readonly #courier: Courier;
  readonly #giveBack: GiveBack;
  readonly #holdings: Holdings;
  readonly #stopping = new AbortController();
  readonly #asking = new Set<Promise<unknown>>();
  readonly #askers = new Map<string, Set<Asker>>();
  readonly #session = randomBytes(12).toString('base64url');
  readonly #stopListening: (() => void) | undefined;
  #acquisitions = 0;

  constructor({ backend, namespace, instance, defaults, events }: LocksSettings) {
    this.clock = backend.clock ?? systemClock;
    this.events = events;
    this.defaults = defaults;
    this.#backend = backend;
    this.#namespace = namespace;
    this.#instance = instance;
    this.#courier = new Courier(backend, this.clock);
    this.#giveBack = new GiveBack(this.#courier, this.clock);
    this.#holdings = new Holdings({
      clock: this.clock,
      events,
      courier: this.#courier,
      giveBack: this.#giveBack,
    });
    setMaxListeners(0, this.#stopping.signal);
    this.#stopListening = backend.onFreed?.((key) => {
      for (const asker of this.#askers.get(key) ?? []) asker.wake();
    });
  }

  /** Aborts when shutdown begins, with a `LockShutdownError`. */
  get stopping(): AbortSignal {
    return this.#stopping.signal;
  }

  async acquire(key: string, options: AcquireOptions = {}): Promise<Lock> {
    const { joined, signals, waitMs, ...ask } = this.#begin(key, options);
    if (joined) return joined;
    using asker = new Asker({ clock: this.clock, waitMs, signals });
    return await this.#inLine(ask.storeKey, asker, () => this.#wait(ask, asker));
  }

  async tryAcquire(key: string, options: AcquireOptions = {}): Promise<Lock | null> {
    const { joined, signals, waitMs, ...ask } = this.#begin(key, options);
    if (joined) return joined;
    using asker = new Asker({ clock: this.clock, waitMs: 0, signals });
    asker.throwIfLeaving();
    const answer = await asker.whileHere(
      this.#ask({ ...ask, holder: this.#newHolder(), patienceMs: waitMs }),
      giveBackIfGranted,
    );
    if (answer instanceof Lease) return this.#acquired(answer, asker);
    if (answer.kind === 'unknown') throw unavailable(key, answer);
    return null;
  }

  async withLock<T>(key: string, options: AcquireOptions, work: (lock: Lock) => T | Promise<T>): Promise<T> {
    const lock = await this.acquire(key, options);
    return lock instanceof Lease ? this.workUnder(lock, work) : work(lock);
  }

  /** Runs the work under a lock that is held already, and gives it back. */
  workUnder<T>(lease: Lease, work: (lock: Lock) => T | Promise<T>): Promise<T> {
    return this.#holdings.workUnder(lease, this, work);
  }

  /** Claims a tick of a job for this process; the lease that comes with it says that the run is on. */
  async claimTick(job: string, tick: TickClaim, leaseMs: number): Promise<Lease | NotGranted> {
    this.#throwIfStopping();
    return this.#ask({
      key: job,
      storeKey: jobKey(this.#namespace, job),
      holder: this.#newHolder(),
      leaseMs,
      renew: true,
      patienceMs: 0,
      tick,
    });
  }

  /** Whether this asynchronous chain is part of a run of the job. */
  isRunning(job: string): boolean {
    return heldInChain(this, jobKey(this.#namespace, job)) !== undefined;
  }

  /** Sleeps, but not longer than until shutdown begins. */
  async sleep(delayMs: number): Promise<void> {
    const slept = new Promise<void>((resolve) => {
      const end = () => {
        timer.cancel();
        this.stopping.removeEventListener('abort', end);
        resolve();
      };
      const timer = this.clock.after(delayMs, end);
      this.stopping.addEventListener('abort', end);
    });
    await slept;
  }

  /** Looks at the store once, for the boot. */
  async check(limitMs: number): Promise<void> {
    const checked = this.#backend.check?.();
    if (checked && !(await atMost(this.clock, limitMs, checked))) throw new NoAnswerInTime(limitMs);
  }

  async inspect(key: string): Promise<LockInfo | null> {
    checkKey(key);
    const inStore = storeKey(this.#namespace, key);
    const record = await this.#look(key, () => this.#backend.inspect(inStore));
    if (!record) return null;
    const { sinceMs, ...rest } = record;
    return { key, ...rest, since: new Date(sinceMs), waiting: this.#askers.get(inStore)?.size ?? 0 };
  }

  async forceRelease(key: string, fencingToken: bigint): Promise<boolean> {
    checkKey(key);
    return this.#look(key, () => this.#backend.forceRelease(storeKey(this.#namespace, key), fencingToken));
  }

  /** Asks the store at once whether what this process holds of the key is still ours; if not, it is lost. */
  confirmHeld(key: string): Promise<void> {
    return this.#holdings.confirm(storeKey(this.#namespace, key));
  }

  /** Refuses everybody who asks, and sends away everybody who waits. What is held stays held and renewed. */
  stopGranting(): void {
    if (this.#stopping.signal.aborted) return;
    this.events.emit('shutdown', { phase: 'draining', left: 0 });
    this.#stopping.abort(
      new LockShutdownError('The application is shutting down: no lock is granted any more.'),
    );
  }

  /** Lets the work under locks end, and answers the keys of those that were not given back. */
  async drain(limits: Required<ShutdownOptions>): Promise<readonly string[]> {
    this.stopGranting();
    await atMost(this.clock, LONGEST_FAREWELL_MS, Promise.all(this.#asking));
    const left = await this.#holdings.drain(limits);
    await atMost(this.clock, LONGEST_FAREWELL_MS, this.#giveBack.settled());
    this.events.emit('shutdown', { phase: 'done', left: left.length });
    return left.map((lease) => lease.key);
  }

  async close(): Promise<void> {
    this.stopGranting();
    this.#stopListening?.();
    this.#giveBack.stop();
    this.#holdings.close();
    await this.#backend.close();
  }

  #begin(key: string, options: AcquireOptions) {
    checkKey(key);
    checkAcquireOptions(options);
    this.#throwIfStopping();
    const { signal, reentrant = false } = options;
    const inStore = storeKey(this.#namespace, key);
    const held = heldInChain(this, inStore);
    if (held && !reentrant) throw reentry(key);
    return {
      key,
      storeKey: inStore,
      signals: signal ? [this.stopping, signal] : [this.stopping],
      joined: held && new JoinedLock(held),
      ...resolveLockOptions(options, this.defaults),
    };
  }

  async #wait(ask: Omit<Ask, 'holder' | 'patienceMs'>, asker: Asker): Promise<Lease> {
    let holder = this.#newHolder();
    let tries = 0;
    for (let wasTaken = false; ;) {
      asker.throwIfLeaving();
      const answer = await asker.whileHere(
        this.#ask({ ...ask, holder, patienceMs: asker.leftMs }),
        giveBackIfGranted,
      );
      if (answer instanceof Lease) return this.#acquired(answer, asker);
      if (answer.kind === 'taken') {
        if (!wasTaken) this.events.emit('contended', { key: ask.key, remainingMs: answer.remainingMs });
        wasTaken = true;
      }
      if (answer.kind === 'unknown') {
        // Who stands in line stays there while the store comes back; who comes to a closed door hears of it at once.
        const staysInLine = wasTaken || answer.cause instanceof NoAnswerInTime;
        if (!staysInLine || asker.leftMs === 0) throw unavailable(ask.key, answer);
        holder = this.#newHolder(); // The old one is being given back, and may be for a while.
      } else if (asker.leftMs === 0) {
        this.events.emit('timeout', { key: ask.key, waitedMs: asker.waitedMs });
        throw timedOut(ask.key, asker.waitedMs);
      }
      tries += 1;
      const heldForMs = answer.kind === 'taken' && answer.remainingMs > 0 ? answer.remainingMs + 1 : Infinity;
      await asker.pause(Math.min(pauseMs(tries), heldForMs, asker.leftMs));
    }
  }

  #acquired(lease: Lease, { waitedMs }: Asker): Lease {
    const { key, fencingToken } = lease;
    this.events.emit('acquired', { key, fencingToken, waitedMs });
    return lease;
  }

  /** Asks the store once. */
  #ask(ask: Ask): Promise<Lease | NotGranted> {
    const asking = this.#request(ask);
    this.#asking.add(asking);
    return asking.finally(() => this.#asking.delete(asking));
  }

  async #request({
    key,
    storeKey: inStore,
    holder,
    leaseMs,
    renew,
    patienceMs,
    tick,
  }: Ask): Promise<Lease | NotGranted> {
    const claim = { key: inStore, holder };
    const limitMs = Math.min(leaseMs / 2, LONGEST_ANSWER_MS, Math.max(SHORTEST_PATIENCE_MS, patienceMs));
    const sentAtMs = this.clock.monotonicMs();
    const untilMs = sentAtMs + limitMs + leaseMs;
    const answer = await this.#courier.acquire(
      { ...claim, leaseMs, instance: this.#instance, ...(tick && { tick }) },
      {
        limitMs,
        onLate: (late) => {
          if (late.kind === 'granted') void this.#giveBack.release(claim, untilMs);
        },
      },
    );
    if (answer.kind === 'granted') {
      return this.#holdings.take({ key, claim, fencingToken: answer.fencingToken, leaseMs, sentAtMs }, renew);
    }
    if (answer.kind === 'unknown') {
      this.events.emit('unavailable', {
        key,
        operation: tick ? 'claim-tick' : 'acquire',
        cause: answer.cause,
      });
      void this.#giveBack.abandon(claim, untilMs);
    }
    return answer;
  }

  async #inLine<T>(inStore: string, asker: Asker, wait: () => Promise<T>): Promise<T> {
    const askers = this.#askers.get(inStore) ?? new Set();
    this.#askers.set(inStore, askers.add(asker));
    try {
      return await wait();
    } finally {
      askers.delete(asker);
      if (askers.size === 0) this.#askers.delete(inStore);
    }
  }

  async #look<T>(key: string, look: () => Promise<T>): Promise<T> {
    this.#throwIfStopping();
    try {
      const seen = look();
      if (await atMost(this.clock, LONGEST_ANSWER_MS, seen)) return await seen;
    } catch (cause) {
      if (cause instanceof LockError) throw cause;
      throw unavailable(key, { kind: 'unknown', cause });
    }
    throw unavailable(key, { kind: 'unknown', cause: new NoAnswerInTime(LONGEST_ANSWER_MS) });
  }

  #throwIfStopping(): void {
    this.#stopping.signal.throwIfAborted();
  }

  #newHolder(): string {
    this.#acquisitions += 1;
    return `${this.#session}:${this.#acquisitions.toString(36)}`;
  }
}

/** Random, so that many who wait do not knock in step. */
const pauseMs = (tries: number) =>
  Math.min(SHORTEST_PAUSE_MS * 2 ** (tries - 1), LONGEST_PAUSE_MS) * (0.5 + Math.random() / 2);

function giveBackIfGranted(answer: Lease | NotGranted): void {
  if (answer instanceof Lease) void answer.giveBack();
}

const unavailable = (key: string, { cause }: Unknown) =>
  new LockUnavailableError(
    `The store could not say whether "${key}" is free (${cause instanceof Error ? cause.message : String(cause)}). ` +
      `Nothing was locked; try again when the store answers.`,
    { key, cause },
  );

const timedOut = (key: string, waitedMs: number) =>
  new LockTimeoutError(
    `"${key}" was still taken after ${Math.round(waitedMs)} ms. Raise waitMs, or make the work under the lock shorter.`,
    { key },
  );

const reentry = (key: string) =>
  new LockReentryError(
    `This asynchronous chain already holds "${key}" and would wait for itself. Pass { reentrant: true } to join the ` +
      `outer lock, or lock something narrower.`,
    { key },
  );
