import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  type Lock,
  type LockEventMessage,
  LockLostError,
  LockShutdownError,
  LockTimeoutError,
  LockUnavailableError,
} from '../../../../lib/index.js';
import { machineMs } from '../../../support/machine-clock.js';
import type { OperationLog } from './operation-log.js';
import type { ListName } from './history.js';
import type { ResourceClient } from './resource-client.js';

interface RecorderOptions {
  readonly name: string;
  readonly log: OperationLog;
  readonly resource: ResourceClient;
}

/** A lock, as its holder writes about it. */
interface HeldLock {
  readonly op: string;
  readonly lock: Lock;
}

const RENEWED = 'nestjs-distributed-lock:renewed';

/** Writes down what became of each wish, always so that nothing is claimed of a lock that it did not say. */
export class Recorder {
  readonly #parts: RecorderOptions;
  readonly #held = new Map<string, HeldLock>();
  #requestCount = 0;
  #itemCount = 0;

  constructor(parts: RecorderOptions) {
    this.#parts = parts;
    subscribe(RENEWED, this.#onRenewed);
  }

  recordRequest(
    key: string,
    { leaseMs, waitMs }: { readonly leaseMs: number; readonly waitMs: number },
  ): string {
    this.#requestCount += 1;
    const op = `${this.#parts.name}:${this.#requestCount}`;
    this.#parts.log.append({ type: 'asked', op, key, leaseMs, waitMs });
    return op;
  }

  recordGrant(op: string, lock: Lock): void {
    // In this order, so that a pause in between makes the time shorter.
    const fromMs = machineMs();
    const untilMs = fromMs + lock.remainingMs();
    this.#held.set(nameOf(lock), { op, lock });
    this.#parts.log.append({ type: 'granted', op, fencingToken: String(lock.fencingToken), untilMs }, fromMs);
    lock.signal.addEventListener('abort', () => {
      if (lock.signal.reason instanceof LockLostError) this.#parts.log.append({ type: 'lost', op });
    });
  }

  /** @throws what no lock should answer */
  recordError(op: string, error: unknown): void {
    this.#parts.log.append({ type: 'refused', op, why: refusalReason(error) });
  }

  recordTaken(op: string): void {
    this.#parts.log.append({ type: 'refused', op, why: 'taken' });
  }

  /** Looks whether the lock is valid. */
  recordValidity({ op, lock }: HeldLock): boolean {
    const atMs = machineMs();
    const isValid = lock.isValid();
    if (isValid) this.#parts.log.append({ type: 'valid', op }, atMs);
    return isValid;
  }

  /** `leaseMs`, if it was extended by so much. */
  recordRenewal({ op, lock }: HeldLock, leaseMs = 0): void {
    const atMs = machineMs();
    const untilMs = atMs + lock.remainingMs();
    if (untilMs > atMs) this.#parts.log.append({ type: 'renewed', op, untilMs, leaseMs }, atMs);
  }

  recordReleasing({ op, lock }: HeldLock): void {
    this.#parts.log.append({ type: 'releasing', op });
    this.#held.delete(nameOf(lock));
  }

  recordRelease({ op }: HeldLock, result: 'ours' | 'gone' | 'unknown'): void {
    this.#parts.log.append({ type: 'released', op, result });
  }

  /** Reads both lists, lets time pass, and writes them back with something more. */
  async addItem({ op, lock }: HeldLock, pauseMs: number): Promise<void> {
    const { resource, log } = this.#parts;
    const { key } = lock;
    const fencingToken = String(lock.fencingToken);
    const send = (list: ListName, items?: readonly string[]) =>
      resource.send({ op, key, list, fencingToken, ...(items && { items }) });
    const before = { fenced: await send('fenced'), unfenced: await send('unfenced') };
    this.#itemCount += 1;
    const item = `${op}+${this.#itemCount}`;
    await sleep(pauseMs);
    this.recordValidity({ op, lock });
    for (const list of ['fenced', 'unfenced'] as const) {
      if (!before[list].wasAccepted) continue;
      const { wasAccepted } = await send(list, [...before[list].items, item]);
      if (wasAccepted) log.append({ type: 'added', op, list, item });
    }
  }

  close(): void {
    unsubscribe(RENEWED, this.#onRenewed);
  }

  readonly #onRenewed = (message: unknown): void => {
    const heldLock = this.#held.get(nameOf(message as LockEventMessage<'renewed'>));
    if (heldLock) this.recordRenewal(heldLock);
  };
}

const nameOf = ({ key, fencingToken }: Pick<Lock, 'key' | 'fencingToken'>) => `${key} ${fencingToken}`;

function refusalReason(error: unknown): string {
  if (error instanceof LockTimeoutError) return 'timeout';
  if (error instanceof LockUnavailableError) return 'unavailable';
  if (error instanceof LockShutdownError) return 'shutdown';
  if (error === CALLER_GAVE_UP) return 'aborted';
  throw error;
}

/** Why somebody does not want to wait any more. */
export const CALLER_GAVE_UP = new Error('out of patience');
