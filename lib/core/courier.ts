import type { Agenda } from './agenda.js';
import {
  type AcquireAnswer,
  type AcquireRequest,
  type Answers,
  type Claim,
  type LockBackend,
  type ReleaseAnswer,
  type ReleaseRequest,
  type RenewAnswer,
  type RenewRequest,
  type Unknown,
  unknown,
} from './backend.js';
import { Batch, type Delivered, type Delivery, Errand, type Verb } from './batch.js';
import { type Clock, type Moment, momentOf } from './clock.js';
import { LockShutdownError } from './errors.js';

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
  #batch: Batch | undefined;
  #isClosed = false;

  constructor({ backend, clock, agenda }: CourierParts) {
    this.#backend = backend;
    this.#clock = clock;
    this.#agenda = agenda;
  }

  acquire(request: AcquireRequest, delivery: Delivery<AcquireAnswer>): Promise<Delivered<AcquireAnswer>> {
    return this.#ask('acquire', request, delivery, ({ acquire }) => acquire);
  }

  renew(request: RenewRequest, delivery: Delivery<RenewAnswer>): Promise<Delivered<RenewAnswer>> {
    return this.#ask('renew', request, delivery, ({ renew }) => renew);
  }

  release(request: ReleaseRequest, delivery: Delivery<ReleaseAnswer>): Promise<Delivered<ReleaseAnswer>> {
    return this.#ask('release', request, delivery, ({ release }) => release);
  }

  /** Settles once all that was asked for so far has been handed to the backend. */
  sent(): Promise<void> {
    return this.#batch?.sent() ?? Promise.resolve();
  }

  /** Brings nothing any more: a request would make the backend open again. */
  close(): void {
    this.#isClosed = true;
  }

  #ask<Request extends Claim, Answer extends { kind: string }>(
    verb: Verb,
    request: Request,
    delivery: Delivery<Answer>,
    listOf: (batch: Batch) => Errand<Request, Answer>[],
  ): Promise<Delivered<Answer | Unknown>> {
    return new Promise((resolve) => {
      if (this.#batch && !this.#batch.fits(verb, request)) this.#send(this.#batch);
      const batch = (this.#batch ??= this.#open());
      batch.enter(verb, request);
      listOf(batch).push(new Errand(request, delivery, resolve));
    });
  }

  #open(): Batch {
    const batch = new Batch();
    // Runs once the promises that one answer settles have run, so that what they ask for goes together again.
    process.nextTick(() => {
      if (this.#batch === batch) this.#send(batch);
    });
    return batch;
  }

  #send(batch: Batch): void {
    this.#batch = undefined;
    const sentAt = momentOf(this.#clock);
    const limitsMs = batch.errands.map(({ limitMs }) => limitMs);
    const stopLooking = this.#giveUpInTime(batch, sentAt, Math.min(...limitsMs));
    void this.#exchange(batch, Math.max(...limitsMs)).then((answers) => {
      stopLooking();
      batch.answered(answers, sentAt, this.#clock.monotonicMs() - sentAt.monotonicMs);
    });
    batch.tellSent();
  }

  /** Looks after the batch whenever the limit of one of its errands is over. */
  #giveUpInTime(batch: Batch, sentAt: Moment, firstLimitMs: number): () => void {
    const lookAfter = (lookMs: number) =>
      this.#agenda.add(sentAt.monotonicMs + lookMs, () => {
        let nextMs = Infinity;
        for (const errand of batch.errands) {
          if (errand.limitMs <= lookMs) errand.giveUp(sentAt);
          else nextMs = Math.min(nextMs, errand.limitMs);
        }
        if (nextMs < Infinity) entry = lookAfter(nextMs);
      });
    let entry = lookAfter(firstLimitMs);
    return () => void this.#agenda.remove(entry);
  }

  async #exchange(batch: Batch, limitMs: number): Promise<Answers> {
    const { requests } = batch;
    try {
      if (this.#isClosed) throw new LockShutdownError('The application has ended.');
      return await this.#backend.exchange(requests, limitMs);
    } catch (cause) {
      const answer = unknown(cause);
      return {
        release: batch.release.map(() => answer),
        renew: batch.renew.map(() => answer),
        acquire: batch.acquire.map(() => answer),
      };
    }
  }
}
