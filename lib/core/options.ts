import { OptionErrors } from './option-errors.js';

export interface LockOptions {
  /**
   * How long to stand in line, in ms. 0 asks once, `Infinity` waits for ever.
   *
   * @default 10_000
   */
  waitMs?: number;
  /**
   * How long the grant lasts unless it is renewed, in ms; also how long a crashed holder blocks the key. Renewed at a
   * third, so it should be well above the longest pause of the event loop.
   *
   * @default 30_000
   */
  leaseMs?: number;
  /**
   * Renew while the lock is held. With `false` it lapses after `leaseMs`, whatever the work does.
   *
   * @default true
   */
  renew?: boolean;
}

export interface AcquireOptions extends LockOptions {
  /** Ends the wait: the call rejects with the reason of this signal. */
  signal?: AbortSignal;
  /**
   * Join the lock when this asynchronous chain holds the key already, instead of failing with `LockReentryError`. The
   * outer lock stays in charge: it alone is renewed and released. If it is released while the inner work still runs, the
   * signal of the inner lock aborts with `LockLostError`, and its `withLock` rejects with it. Calls that join one lock do not
   * exclude each other: started together, as with `Promise.all`, they run side by side.
   *
   * The chain is the asynchronous context of Node.js (`AsyncLocalStorage`). A pool or queue that runs a task in the context
   * of another one makes strangers part of the chain. With `reentrant` such a task then enters beside the holder. Bind each
   * task when it is queued, with `AsyncResource.bind()`, or leave `reentrant` out: the task then fails with
   * `LockReentryError`.
   *
   * @default false
   */
  reentrant?: boolean;
}

export interface ShutdownOptions {
  /**
   * How long work under a lock may go on after shutdown began, in ms. Its locks are renewed meanwhile.
   *
   * @default 10_000
   */
  drainMs?: number;
  /**
   * How long it may go on after its signal was aborted with `LockShutdownError`, in ms. What still runs then keeps its
   * lock until the lease lapses.
   *
   * @default 2_000
   */
  abortGraceMs?: number;
}

/** Lock options with every default filled in. */
export type ResolvedLockOptions = Required<LockOptions>;

export const BUILT_IN_LOCK_OPTIONS: ResolvedLockOptions = { waitMs: 10_000, leaseMs: 30_000, renew: true };

export const BUILT_IN_SHUTDOWN_OPTIONS: Required<ShutdownOptions> = { drainMs: 10_000, abortGraceMs: 2_000 };

/** Shorter leases are over before a renewal can come back. */
export const MIN_LEASE_MS = 10;

const LOCK_OPTIONS = ['waitMs', 'leaseMs', 'renew'] as const;
const ACQUIRE_ONLY = ['signal', 'reentrant'] as const;

export function collectLockErrors(
  errors: OptionErrors,
  path: string,
  value: unknown,
  alsoKnown: readonly string[] = [],
): void {
  const options = errors.object(path, value, [...LOCK_OPTIONS, ...alsoKnown]);
  errors.durationMs(`${path}.waitMs`, options.waitMs, { max: Infinity });
  errors.integerMs(`${path}.leaseMs`, options.leaseMs, { min: MIN_LEASE_MS });
  errors.boolean(`${path}.renew`, options.renew);
}

export function collectAcquireErrors(
  errors: OptionErrors,
  path: string,
  value: unknown,
  alsoKnown: readonly string[] = [],
): void {
  collectLockErrors(errors, path, value, [...ACQUIRE_ONLY, ...alsoKnown]);
  const options = (value ?? {}) as AcquireOptions;
  errors.boolean(`${path}.reentrant`, options.reentrant);
  errors.expect(`${path}.signal`, options.signal, 'an AbortSignal', options.signal instanceof AbortSignal);
}

/** `maxLeaseMs` is that of the backend. */
export function collectMaxLeaseErrors(
  errors: OptionErrors,
  path: string,
  leaseMs: unknown,
  maxLeaseMs = Infinity,
): void {
  if (typeof leaseMs !== 'number' || !(leaseMs > maxLeaseMs)) return;
  errors.add(
    `expected ${path} to be at most ${maxLeaseMs}, which is maxLeaseMs of this backend, got ${leaseMs}; ask for less, or ` +
      `raise maxLeaseMs in all processes`,
  );
}

/** @throws LockConfigError */
export function checkAcquireOptions(
  options: unknown,
  maxLeaseMs?: number,
): asserts options is AcquireOptions {
  const errors = new OptionErrors();
  collectAcquireErrors(errors, 'options', options);
  collectMaxLeaseErrors(errors, 'options.leaseMs', (Object(options) as AcquireOptions).leaseMs, maxLeaseMs);
  errors.throwIfAny('Wrong lock options');
}

/** @throws LockConfigError */
export function checkLeaseMs(leaseMs: unknown, maxLeaseMs?: number): asserts leaseMs is number {
  const errors = new OptionErrors();
  errors.integerMs('leaseMs', leaseMs ?? null, { min: MIN_LEASE_MS });
  collectMaxLeaseErrors(errors, 'leaseMs', leaseMs, maxLeaseMs);
  errors.throwIfAny('Wrong lease');
}

/** The nearest one wins: call, then decorator, then module, then built-in. */
export const resolveLockOptions = (
  options: LockOptions,
  defaults: ResolvedLockOptions,
): ResolvedLockOptions => ({
  waitMs: options.waitMs ?? defaults.waitMs,
  leaseMs: options.leaseMs ?? defaults.leaseMs,
  renew: options.renew ?? defaults.renew,
});
