import { AsyncResource } from 'node:async_hooks';
import type { Agenda, Entry } from './agenda.js';
import type { Answers, LockBackend } from './backend.js';
import { Batch, type Errands, type Verb } from './batch.js';
import { type Clock, type Moment, momentOf } from './clock.js';
import { LockShutdownError } from './errors.js';
import type { Spot } from './list.js';
import { nextTick } from './real-time.js';

/** No errand has a longer limit. As errands go together, each may reach the store as late as that. */
export const LONGEST_LIMIT_MS = 5_000;

interface CourierParts {
  readonly backend: LockBackend;
  readonly clock: Clock;
  readonly agenda: Agenda;
}

/**
 * Brings requests to the backend and always comes back: within the limit, never with a rejection. What went wrong
 * or took too long is `unknown`, since the request may have taken effect or may yet do so.
 *
 * What one turn of the event loop asks for goes out together at its end, so a lone request waits for nobody.
 */
export class Courier {
  readonly #backend: LockBackend;
  readonly #clock: Clock;
  readonly #agenda: Agenda;
  /** What goes together was asked for by many: it travels in the asynchronous context of none of them. */
  readonly #context = new AsyncResource('LockCourier');
  readonly #enough: number;
  #batch: Batch | undefined;
  #isClosed = false;

  constructor({ backend, clock, agenda }: CourierParts) {
    this.#backend = backend;
    this.#enough = backend.enoughAtOnce ?? Infinity;
    this.#clock = clock;
    this.#agenda = agenda;
  }

  send<V extends Verb>(verb: V, errand: Errands[V]): void {
    if (this.#batch && !this.#batch.fits(errand)) this.#send(this.#batch);
    this.#batch ??= this.#open();
    this.#batch.add(verb, errand);
    // Nobody waits for renewals: they may go together with more.
    if (verb !== 'renew' && this.#batch.size >= this.#enough) this.#send(this.#batch);
  }

  /** Settles once all that was asked for so far has been handed to the backend. */
  sent(): Promise<void> {
    return this.#batch?.sent() ?? Promise.resolve();
  }

  /** Brings nothing any more: a request would make the backend open again. */
  close(): void {
    this.#isClosed = true;
  }

  #open(): Batch {
    const batch = new Batch();
    // Runs once the promises that one answer settles have run, so that what they ask for goes together again.
    nextTick(() => {
      if (this.#batch === batch) this.#send(batch);
    });
    return batch;
  }

  #send(batch: Batch): void {
    this.#batch = undefined;
    this.#context.runInAsyncScope(() => this.#carry(batch));
  }

  #carry(batch: Batch): void {
    const sentAt = momentOf(this.#clock);
    const limit = new Limit(batch, sentAt, this.#agenda);
    const tookMs = () => {
      limit.lift();
      return this.#clock.monotonicMs() - sentAt.monotonicMs;
    };
    this.#exchange(batch).then(
      (answers) => batch.answered(answers, sentAt, tookMs()),
      (cause: unknown) => batch.failed(cause, sentAt, tookMs()),
    );
    batch.tellSent();
  }

  async #exchange(batch: Batch): Promise<Answers> {
    if (this.#isClosed) throw new LockShutdownError('The application has ended.');
    return await this.#backend.exchange(batch.requests, batch.longestLimitMs);
  }
}

/** Gives up the errands of a batch, each when its limit is over. */
class Limit implements Entry {
  readonly #batch: Batch;
  readonly #sentAt: Moment;
  readonly #agenda: Agenda;
  spot: Spot<Entry> | undefined;
  #limitMs: number;

  constructor(batch: Batch, sentAt: Moment, agenda: Agenda) {
    this.#batch = batch;
    this.#sentAt = sentAt;
    this.#agenda = agenda;
    this.#limitMs = batch.shortestLimitMs;
    agenda.add(this);
  }

  get atMs(): number {
    return this.#sentAt.monotonicMs + this.#limitMs;
  }

  run(): void {
    this.#limitMs = this.#batch.giveUp(this.#limitMs, this.#sentAt);
    if (this.#limitMs < Infinity) this.#agenda.add(this);
  }

  lift(): void {
    this.#agenda.remove(this);
  }
}
