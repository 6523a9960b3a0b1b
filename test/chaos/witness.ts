import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  type Lock,
  type LockEventMessage,
  LockLostError,
  LockShutdownError,
  LockTimeoutError,
  LockUnavailableError,
} from '../../lib/index.js';
import { machineMs } from '../machine-ms.js';
import type { Diary } from './diary.js';
import type { ListName } from './history.js';
import type { ResourceClient } from './resource-client.js';

interface WitnessParts {
  readonly name: string;
  readonly diary: Diary;
  readonly resource: ResourceClient;
}

/** A lock, as its holder writes about it. */
interface Held {
  readonly op: string;
  readonly lock: Lock;
}

const RENEWED = 'nestjs-distributed-lock:renewed';

/** Writes down what became of each wish, always so that nothing is claimed of a lock that it did not say. */
export class Witness {
  readonly #parts: WitnessParts;
  readonly #held = new Map<string, Held>();
  #asked = 0;
  #added = 0;

  constructor(parts: WitnessParts) {
    this.#parts = parts;
    subscribe(RENEWED, this.#renewed);
  }

  asked(key: string, { leaseMs, waitMs }: { readonly leaseMs: number; readonly waitMs: number }): string {
    this.#asked += 1;
    const op = `${this.#parts.name}:${this.#asked}`;
    this.#parts.diary.note({ type: 'asked', op, key, leaseMs, waitMs });
    return op;
  }

  granted(op: string, lock: Lock): void {
    // In this order, so that a pause in between makes the time shorter.
    const fromMs = machineMs();
    const untilMs = fromMs + lock.remainingMs();
    this.#held.set(nameOf(lock), { op, lock });
    this.#parts.diary.note({ type: 'granted', op, fencingToken: String(lock.fencingToken), untilMs }, fromMs);
    lock.signal.addEventListener('abort', () => {
      if (lock.signal.reason instanceof LockLostError) this.#parts.diary.note({ type: 'lost', op });
    });
  }

  /** @throws what no lock should answer */
  refused(op: string, error: unknown): void {
    this.#parts.diary.note({ type: 'refused', op, why: whyOf(error) });
  }

  taken(op: string): void {
    this.#parts.diary.note({ type: 'refused', op, why: 'taken' });
  }

  /** Looks whether the lock is valid. */
  sees({ op, lock }: Held): boolean {
    const atMs = machineMs();
    const isValid = lock.isValid();
    if (isValid) this.#parts.diary.note({ type: 'valid', op }, atMs);
    return isValid;
  }

  /** `leaseMs`, if it was extended by so much. */
  renewed({ op, lock }: Held, leaseMs = 0): void {
    const atMs = machineMs();
    const untilMs = atMs + lock.remainingMs();
    if (untilMs > atMs) this.#parts.diary.note({ type: 'renewed', op, untilMs, leaseMs }, atMs);
  }

  releasing({ op, lock }: Held): void {
    this.#parts.diary.note({ type: 'releasing', op });
    this.#held.delete(nameOf(lock));
  }

  released({ op }: Held, answer: 'ours' | 'gone' | 'unknown'): void {
    this.#parts.diary.note({ type: 'released', op, answer });
  }

  /** Reads both lists, lets time pass, and writes them back with something more. */
  async add({ op, lock }: Held, pauseMs: number): Promise<void> {
    const { resource, diary } = this.#parts;
    const { key } = lock;
    const fencingToken = String(lock.fencingToken);
    const ask = (list: ListName, items?: readonly string[]) =>
      resource.ask({ op, key, list, fencingToken, ...(items && { items }) });
    const before = { fenced: await ask('fenced'), unfenced: await ask('unfenced') };
    this.#added += 1;
    const item = `${op}+${this.#added}`;
    await sleep(pauseMs);
    this.sees({ op, lock });
    for (const list of ['fenced', 'unfenced'] as const) {
      if (!before[list].wasAccepted) continue;
      const { wasAccepted } = await ask(list, [...before[list].items, item]);
      if (wasAccepted) diary.note({ type: 'added', op, list, item });
    }
  }

  close(): void {
    unsubscribe(RENEWED, this.#renewed);
  }

  readonly #renewed = (message: unknown): void => {
    const held = this.#held.get(nameOf(message as LockEventMessage<'renewed'>));
    if (held) this.renewed(held);
  };
}

const nameOf = ({ key, fencingToken }: Pick<Lock, 'key' | 'fencingToken'>) => `${key} ${fencingToken}`;

function whyOf(error: unknown): string {
  if (error instanceof LockTimeoutError) return 'timeout';
  if (error instanceof LockUnavailableError) return 'unavailable';
  if (error instanceof LockShutdownError) return 'shutdown';
  if (error === IMPATIENCE) return 'aborted';
  throw error;
}

/** Why somebody does not want to wait any more. */
export const IMPATIENCE = new Error('out of patience');
