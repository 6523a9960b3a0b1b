import type { Clock } from '../clock.js';
import { LockTimeoutError, isError } from '../errors.js';
import type { EventSubject, Events, LockEventName } from '../events.js';
import type { InternalLock } from '../leases/internal-lock.js';
import type { LockAdmin } from '../lock-admin.js';
import type { ResolvedLockOptions } from '../options.js';
import { type AcquireTrace, createAcquireTrace, isAcquireTraced, traceAcquire } from '../tracing-channels.js';
import { type WaitSignal, WaitController } from '../waiting/wait-controller.js';
import type { AcquireParams } from '../waiting/waiter.js';
import type { WaitQueues } from '../waiting/wait-queues.js';

/** What the kinds of locks use of the engine. */
export interface KindParts {
  readonly namespace: string;
  readonly clock: Clock;
  readonly events: Events;
  readonly waitQueues: WaitQueues;
  readonly lockAdmin: LockAdmin;
  readonly stopController: AbortController;
}

/** One call that acquires a composite lock. */
export interface CompositeCall extends ResolvedLockOptions {
  /** The name of the lock in events and errors. */
  readonly key: string;
  readonly label: string | undefined;
  readonly signal: AbortSignal | undefined;
}

/** Nobody receives it. Without a reason, each abort would create an error with its stack. */
const ENDED = 'The acquisition has ended.';

/** What the composite lock publishes in place of its parts. */
export const PUBLISHED_BY_WHOLE: ReadonlySet<LockEventName> = new Set([
  'acquired',
  'contended',
  'timeout',
  'released',
  'lost',
  'transaction-open',
]);

/** What a part of a composite lock does not publish: how it was acquired, and how it ends. */
export const HIDDEN_IN_WHOLE: ReadonlySet<LockEventName> = new Set([...PUBLISHED_BY_WHOLE, 'unavailable']);

/** The parts beside the first one also publish nothing about the store, so that one outage is one event. */
const HIDDEN_BESIDE_FIRST: ReadonlySet<LockEventName> = new Set([
  ...HIDDEN_IN_WHOLE,
  'renewed',
  'renewal-failed',
]);

/**
 * The acquisition of a lock that consists of several: how long it has waited, and the signal that ends all its parts.
 * Publishes one event for what happens to the whole.
 */
export class CompositeAcquisition implements EventSubject {
  readonly label: string | undefined;
  readonly startedAtMs: number;
  readonly #call: CompositeCall;
  readonly #parts: KindParts;
  readonly #trace: AcquireTrace | undefined;
  readonly #ended = new WaitController();
  #isContended = false;

  constructor(call: CompositeCall, parts: KindParts) {
    this.#call = call;
    this.#parts = parts;
    this.label = call.label;
    this.startedAtMs = parts.clock.monotonicMs();
    if (isAcquireTraced()) this.#trace = createAcquireTrace(parts.events.source, call);
  }

  /** Aborts when the wait of the parts has ended. */
  get signal(): WaitSignal {
    return this.#ended;
  }

  get waitedMs(): number {
    return this.#parts.clock.monotonicMs() - this.startedAtMs;
  }

  /** The parameters of one part. */
  paramsOf(
    key: string,
    storeKey: string,
    { isFirst = true }: { readonly isFirst?: boolean } = {},
  ): AcquireParams {
    const { waitMs, leaseMs, renew } = this.#call;
    const suppressedEvents = isFirst ? PUBLISHED_BY_WHOLE : HIDDEN_BESIDE_FIRST;
    const { label, startedAtMs } = this;
    const { signal } = this;
    const isWaitingElsewhere = !isFirst || this.#isContended;
    return {
      key,
      storeKey,
      waitMs,
      leaseMs,
      renew,
      label,
      suppressedEvents,
      startedAtMs,
      signal,
      isWaitingElsewhere,
    };
  }

  /** Publishes that the caller waits, once. */
  onContended(remainingMs: number): void {
    if (this.#isContended) return;
    this.#isContended = true;
    if (this.#trace) this.#trace.isContended = true;
    this.#parts.events.emit('contended', { key: this.#call.key, remainingMs }, this);
  }

  /**
   * Runs the steps that acquire the parts. When they have ended, no part of the acquisition waits any more.
   *
   * @throws what the steps throw; the reason of the caller's signal, or of the shutdown
   */
  run<T extends InternalLock | null>(steps: () => Promise<T>): Promise<T> {
    return this.#trace ? traceAcquire(this.#trace, () => this.#run(steps)) : this.#run(steps);
  }

  async #run<T extends InternalLock | null>(steps: () => Promise<T>): Promise<T> {
    const { signal, key } = this.#call;
    const unfollow = signal && this.#ended.follow(signal);
    try {
      const lock = await steps();
      if (lock)
        this.#parts.events.emit(
          'acquired',
          { key, fencingToken: lock.eventToken, waitedMs: this.waitedMs },
          lock,
        );
      return lock;
    } catch (error) {
      if (isError(LockTimeoutError, error))
        this.#parts.events.emit('timeout', { key, waitedMs: this.waitedMs }, this);
      throw error;
    } finally {
      unfollow?.();
      this.endParts();
    }
  }

  /** Ends the waits of all parts that are not granted yet. */
  endParts(): void {
    this.#ended.abort(ENDED);
  }

  /**
   * Waits for the work, but not after the end of the acquisition.
   *
   * @throws what the work throws; the reason of the signal, or of the shutdown
   */
  async untilEnded<T>(work: Promise<T>): Promise<T> {
    const { signal } = this;
    let onAbort = (): void => undefined;
    const ended = new Promise<void>((resolve) => (onAbort = resolve));
    signal.addEventListener('abort', onAbort);
    if (signal.aborted) onAbort();
    try {
      await Promise.race([work, ended]);
    } finally {
      signal.removeEventListener('abort', onAbort);
    }
    this.throwIfEnded();
    return work;
  }

  /** Called between two steps. @throws the reason of the signal, or of the shutdown */
  throwIfEnded(): void {
    this.#ended.throwIfAborted();
    this.#parts.stopController.signal.throwIfAborted();
  }
}
