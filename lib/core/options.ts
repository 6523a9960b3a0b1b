import type { LockBackend } from './backend.js';
import { MAX_PERMITS } from './store-key.js';
import { OptionErrors } from './option-errors.js';

export interface LockOptions {
  /**
   * How long to wait for the lock, in ms. 0 tries once, `Infinity` waits forever.
   *
   * @default 10_000
   */
  waitMs?: number;
  /**
   * How long the lock lasts without a renewal, in ms; also how long a crashed holder blocks the key. The lock is
   * renewed after a third of this time. Choose it much longer than the longest pause of the event loop.
   *
   * @default 30_000
   */
  leaseMs?: number;
  /**
   * Renews the lock while it is held. With `false` it expires after `leaseMs`, even if the work still runs.
   *
   * @default true
   */
  renew?: boolean;
}

/** Whether the work under a lock only reads, beside other readers, or writes, alone. */
export type LockMode = 'read' | 'write';

export interface AcquireOptions extends LockOptions {
  /** When this signal aborts, the wait ends, and the call rejects with the reason of the signal. */
  signal?: AbortSignal;
  /**
   * Re-enters the lock if this asynchronous context already holds the key, instead of failing with `LockReentryError`.
   * Only the outer lock is renewed and released. If it is released while the inner work still runs, the signal of the
   * inner lock aborts with `LockLostError`, and its `withLock` rejects with the same error. Calls that re-enter one
   * lock do not exclude each other: with `Promise.all`, they run at the same time.
   *
   * The context is that of `AsyncLocalStorage` in Node.js. If you use a pool or queue of tasks, bind each task with
   * `AsyncResource.bind()` when you queue it. Otherwise a task may run in the context of another task: with
   * `reentrant`, it enters while the other one holds the lock, and without it, it fails with `LockReentryError`.
   *
   * @default false
   */
  reentrant?: boolean;
  /**
   * How many holders the key may have at the same time, in the whole cluster: 1 to 64. `lock.permit` says which of them
   * this is, from 0. Pass the same number everywhere: a caller with a smaller one uses only the first permits.
   *
   * @default one holder, and another lock than that of the same key with permits
   */
  permits?: number;
  /**
   * `'write'`: the lock excludes all readers and writers of the key. `'read'`: it excludes only writers. A waiting writer
   * keeps new readers out. Up to 16 processes read at once, each with any number of readers. A read lock has no fencing
   * token: its `fencingToken` throws `LockConfigError`.
   *
   * @default one holder, and another lock than that of the same key with a mode
   */
  mode?: LockMode;
  /**
   * By what metrics count this lock: the `template` of its events, up to 128 characters. Do not put values such as
   * order numbers into it.
   *
   * @default the text of the decorator's key, else the key with its digits and ids replaced
   */
  label?: string;
}

export interface ShutdownOptions {
  /**
   * How long work under a lock may continue after shutdown began, in ms. Its locks are renewed meanwhile.
   *
   * @default 10_000
   */
  drainMs?: number;
  /**
   * How long the work may continue after its signal was aborted with `LockShutdownError`, in ms. If it still runs after
   * that, its lock is not released; the lease expires.
   *
   * @default 2_000
   */
  abortGraceMs?: number;
}

/** Lock options with every default filled in. */
export type ResolvedLockOptions = Required<LockOptions>;

export const BUILT_IN_LOCK_OPTIONS: ResolvedLockOptions = { waitMs: 10_000, leaseMs: 30_000, renew: true };

export const BUILT_IN_SHUTDOWN_OPTIONS: Required<ShutdownOptions> = { drainMs: 10_000, abortGraceMs: 2_000 };

/** A shorter lease would expire before the result of a renewal could arrive. */
export const MIN_LEASE_MS = 10;

const LOCK_OPTIONS = ['waitMs', 'leaseMs', 'renew'] as const;
const ACQUIRE_ONLY = ['signal', 'reentrant', 'permits', 'mode', 'label'] as const;

/** The longest text by which a lock is counted. */
export const MAX_LABEL_LENGTH = 128;

interface OptionNames {
  readonly alsoKnown?: readonly string[];
  /** Options that are refused here, and what to do instead. */
  readonly hints?: Readonly<Record<string, string>> | undefined;
}

export function collectLockErrors(
  errors: OptionErrors,
  path: string,
  value: unknown,
  { alsoKnown = [], hints = {} }: OptionNames = {},
): void {
  if (typeof value === 'number') {
    errors.add(`expected ${path} to be an object, got ${value}; write { leaseMs: ${value} }`);
    return;
  }
  const known = [...LOCK_OPTIONS, ...alsoKnown].filter((name) => !(name in hints));
  const options = errors.object(path, value, known, hints);
  errors.durationMs(`${path}.waitMs`, options.waitMs, { max: Infinity });
  errors.integerMs(`${path}.leaseMs`, options.leaseMs, { min: MIN_LEASE_MS });
  errors.boolean(`${path}.renew`, options.renew);
}

export function collectAcquireErrors(
  errors: OptionErrors,
  path: string,
  value: unknown,
  { alsoKnown = [], hints }: OptionNames = {},
): void {
  collectLockErrors(errors, path, value, { alsoKnown: [...ACQUIRE_ONLY, ...alsoKnown], hints });
  const options = (value ?? {}) as AcquireOptions;
  errors.boolean(`${path}.reentrant`, options.reentrant);
  collectKindErrors(errors, path, options);
  errors.text(`${path}.label`, options.label, { max: MAX_LABEL_LENGTH });
  errors.expect(`${path}.signal`, options.signal, 'an AbortSignal', options.signal instanceof AbortSignal);
}

/** What is wrong with the kind of lock that the options ask for. */
export function collectKindErrors(
  errors: OptionErrors,
  path: string,
  { permits, mode }: Pick<AcquireOptions, 'permits' | 'mode'>,
): void {
  const isCount = Number.isInteger(permits) && Number(permits) >= 1 && Number(permits) <= MAX_PERMITS;
  errors.expect(`${path}.permits`, permits, `a whole number from 1 to ${MAX_PERMITS}`, isCount);
  errors.expect(`${path}.mode`, mode, "'read' or 'write'", mode === 'read' || mode === 'write');
  if (mode !== undefined && permits !== undefined)
    errors.add(`expected ${path} to have permits or a mode, got both; use a key for each`);
}

/** The shortest and the longest lease of a backend. */
export type LeaseLimits = Pick<LockBackend, 'minLeaseMs' | 'maxLeaseMs'>;

export function collectLeaseLimitErrors(
  errors: OptionErrors,
  path: string,
  leaseMs: unknown,
  { minLeaseMs = 0, maxLeaseMs = Infinity }: LeaseLimits,
): void {
  if (typeof leaseMs !== 'number') return;
  if (leaseMs < minLeaseMs) {
    errors.add(
      `expected ${path} to be at least ${minLeaseMs}, which is minLeaseMs of this backend, got ${leaseMs}: its store ` +
        `cannot end a shorter lease in time`,
    );
  }
  if (leaseMs > maxLeaseMs) {
    errors.add(
      `expected ${path} to be at most ${maxLeaseMs}, which is maxLeaseMs of this backend, got ${leaseMs}; ask for less, ` +
        `or raise maxLeaseMs (on ZooKeeper, sessionTimeoutMs) in all processes`,
    );
  }
}

/** @throws LockConfigError */
export function checkAcquireOptions(
  options: unknown,
  limits: LeaseLimits = {},
): asserts options is AcquireOptions {
  const errors = new OptionErrors();
  collectAcquireErrors(errors, 'options', options);
  collectLeaseLimitErrors(errors, 'options.leaseMs', (Object(options) as AcquireOptions).leaseMs, limits);
  errors.throwIfAny('Wrong lock options');
}

/** @throws LockConfigError */
export function checkLeaseMs(leaseMs: unknown, limits: LeaseLimits): asserts leaseMs is number {
  const errors = new OptionErrors();
  errors.integerMs('leaseMs', leaseMs ?? null, { min: MIN_LEASE_MS });
  collectLeaseLimitErrors(errors, 'leaseMs', leaseMs, limits);
  errors.throwIfAny('Wrong lease');
}

/** The most specific option wins: call, then decorator, then module, then built-in. */
export const resolveLockOptions = (
  options: LockOptions,
  defaults: ResolvedLockOptions,
): ResolvedLockOptions => ({
  waitMs: options.waitMs ?? defaults.waitMs,
  leaseMs: options.leaseMs ?? defaults.leaseMs,
  renew: options.renew ?? defaults.renew,
});
