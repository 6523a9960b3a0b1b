import { setMaxListeners } from 'node:events';
import type { Agenda, Entry } from './agenda.js';
import type { Clock } from './clock.js';
import type { Lease } from './lease.js';
import type { Spot } from './list.js';
import type { ResolvedLockOptions } from './options.js';

/** What somebody asks for. */
export interface Wish extends ResolvedLockOptions {
  /** The key as its user knows it. */
  readonly key: string;
  readonly storeKey: string;
  /** Ends the wait with its reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Where somebody waits. */
export interface WaitingPlace {
  timeIsOver(asker: Asker): void;
  /** Its signal ended the wait. */
  sendAway(asker: Asker, reason: unknown): void;
}

/** Even who does not wait for the lock waits so long for the answer. */
export const SHORTEST_PATIENCE_MS = 1_000;

/** A caller who wants a key: how long still, and what he is told in the end. */
export class Asker implements Entry {
  readonly wish: Wish;
  /** Settles with the lock, or with the reason why there is none. */
  readonly outcome: Promise<Lease>;
  readonly #clock: Clock;
  readonly #startedAtMs: number;
  /** Where he stands in line. */
  inLine: Spot<Asker> | undefined;
  spot: Spot<Entry> | undefined;
  #isSettled = false;
  #awaitsWord = false;
  #place: WaitingPlace | undefined;
  #onAbort: (() => void) | undefined;
  #resolve!: (lease: Lease) => void;
  #reject!: (reason: unknown) => void;

  constructor(wish: Wish, clock: Clock) {
    this.wish = wish;
    this.#clock = clock;
    this.#startedAtMs = clock.monotonicMs();
    this.outcome = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  /** When he will have waited for long enough. */
  get atMs(): number {
    const { waitMs } = this.wish;
    return this.#startedAtMs + (this.#awaitsWord ? Math.max(waitMs, SHORTEST_PATIENCE_MS) : waitMs);
  }

  get waitedMs(): number {
    return this.#clock.monotonicMs() - this.#startedAtMs;
  }

  get leftMs(): number {
    return Math.max(this.wish.waitMs - this.waitedMs, 0);
  }

  /** Has been granted the lock, or refused. */
  get isSettled(): boolean {
    return this.#isSettled;
  }

  /** Leaves the place when its signal ends the wait. */
  listen(place: Pick<WaitingPlace, 'sendAway'>): void {
    const { signal } = this.wish;
    if (!signal) return;
    this.#onAbort = () => place.sendAway(this, signal.reason);
    setMaxListeners(0, signal); // Any number may wait with one signal.
    signal.addEventListener('abort', this.#onAbort);
  }

  /** Whether he has not heard yet if the key is taken. */
  get awaitsWord(): boolean {
    return this.#awaitsWord;
  }

  /** Waits for the answer to a question that is open already, which may take longer than he would wait for one of his own. */
  awaitWord(agenda: Agenda, place: WaitingPlace): void {
    this.#awaitsWord = true;
    this.wait(agenda, place);
  }

  /** Has heard how things stand. */
  heardWord(agenda: Agenda): void {
    if (!this.#awaitsWord) return;
    const isPlanned = agenda.remove(this);
    this.#awaitsWord = false;
    if (isPlanned) agenda.add(this);
  }

  /** Waits until he is granted the lock or refused, but not longer than he wishes. */
  wait(agenda: Agenda, place: WaitingPlace): void {
    if (this.#place) return;
    this.#place = place;
    agenda.add(this);
  }

  run(): void {
    this.#place?.timeIsOver(this);
  }

  granted(lease: Lease, agenda: Agenda): void {
    this.leave(agenda);
    this.#resolve(lease);
  }

  refused(reason: unknown, agenda: Agenda): void {
    this.leave(agenda);
    this.#reject(reason);
  }

  /** Waits for nothing any more. */
  leave(agenda: Agenda): void {
    this.#isSettled = true;
    if (this.#place) agenda.remove(this);
    if (this.#onAbort) this.wish.signal?.removeEventListener('abort', this.#onAbort);
  }
}
