import { randomBytes } from 'node:crypto';
import { type AcquireRequest, type AcquireResult, type Granted, unknownResult } from '../backend.js';
import { type Clock, type Moment } from '../clock.js';
import { LockShutdownError } from '../errors.js';
import type { Events } from '../events.js';
import { type Batcher, MAX_REQUEST_TIMEOUT_MS } from '../requests/batcher.js';
import { InFlight } from '../requests/in-flight.js';
import { StoreTimeoutError } from '../requests/store-timeout-error.js';
import { withTimeout } from '../requests/with-timeout.js';
import { Grant } from './grant.js';
import type { Releaser } from './releaser.js';

/** One attempt to acquire a key. */
interface Acquisition {
  /** The key as the application named it. */
  readonly key: string;
  readonly request: AcquireRequest;
  /** How long the caller waits for the result of the store. */
  readonly maxResultWaitMs: number;
}

/** Why a key was not granted. */
export type NotGranted = Exclude<AcquireResult, Granted>;

interface AcquirerParts {
  readonly clock: Clock;
  readonly events: Events;
  readonly batcher: Batcher;
  readonly releaser: Releaser;
}

/** Timeouts are rounded up to this step, so that the requests of a batch have few different ones. */
const TIMEOUT_STEP_MS = 50;

/** Sends acquisitions to the store. Withdraws an acquisition whose outcome is unknown. */
export class Acquirer {
  readonly #parts: AcquirerParts;
  readonly #inFlight = new InFlight();
  readonly #session = randomBytes(12).toString('base64url');
  #acquisitions = 0;
  #isClosed = false;

  constructor(parts: AcquirerParts) {
    this.#parts = parts;
  }

  /** Returns a new holder: the identity of one acquisition. */
  newHolder(): string {
    this.#acquisitions += 1;
    return `${this.#session}:${this.#acquisitions.toString(36)}`;
  }

  /** Calls back with the result, exactly once. */
  acquire(acquisition: Acquisition, onResult: (result: Grant | NotGranted) => void): void {
    this.#send(acquisition, (result, sentAt) => {
      if (result.kind === 'granted') onResult(this.#createGrant(acquisition, result, sentAt));
      else {
        if (mayStillTakeEffect(result)) this.#withdraw(acquisition, sentAt);
        onResult(this.#reportIfUnknown(acquisition, result));
      }
    });
  }

  /**
   * Claims a tick. If the outcome is unknown, the store may have granted the tick to this claim, and no other replica
   * could run it. The claim is therefore repeated once: the same holder gets the same grant again.
   */
  async claim(acquisition: Acquisition): Promise<Grant | NotGranted> {
    const [first, firstSentAt] = await this.#claimOnce(acquisition);
    if (first.kind === 'granted') return this.#createGrant(acquisition, first, firstSentAt);
    if (!mayStillTakeEffect(first)) return this.#reportIfUnknown(acquisition, first);
    const tookMs = this.#parts.clock.monotonicMs() - firstSentAt.monotonicMs;
    const isTooLate = isStoreTimeout(first) && tookMs >= timeoutOf(acquisition) / 2;
    const [result, sentAt] = isTooLate ? [first, firstSentAt] : await this.#claimOnce(acquisition);
    if (result.kind === 'granted') return this.#createGrant(acquisition, result, sentAt);
    this.#withdraw(acquisition, sentAt);
    return this.#reportIfUnknown(acquisition, result);
  }

  /** Waits for the results that are still open, but at most `timeoutMs`. */
  async whenSettled(timeoutMs: number): Promise<void> {
    await withTimeout(this.#parts.clock, timeoutMs, this.#inFlight.whenIdle(), { awaited: true });
  }

  /** Ignores grants from now on. Their leases expire. */
  close(): void {
    this.#isClosed = true;
  }

  #claimOnce(acquisition: Acquisition): Promise<[AcquireResult, Moment]> {
    return new Promise((resolve) => {
      this.#send(acquisition, (result, sentAt) => resolve([result, sentAt]));
    });
  }

  #createGrant(acquisition: Acquisition, granted: Granted, sentAt: Moment): Grant | NotGranted {
    const { key, request } = acquisition;
    if (this.#isClosed) return unknownResult(new LockShutdownError('The application has ended.', { key }));
    const lastsUntilMs = lastsUntil(acquisition, sentAt);
    return new Grant({ key, request, granted, sentAt, lastsUntilMs }, this.#parts.clock);
  }

  #reportIfUnknown({ key, request }: Acquisition, result: NotGranted): NotGranted {
    if (result.kind === 'unknown') {
      const operation = request.tick ? 'claim-tick' : 'acquire';
      this.#parts.events.emit('unavailable', { key, operation, cause: result.cause });
    }
    return result;
  }

  #withdraw(acquisition: Acquisition, sentAt: Moment): void {
    this.#parts.releaser.withdraw(acquisition.request, lastsUntil(acquisition, sentAt));
  }

  #send(acquisition: Acquisition, onResult: OnResult): void {
    const { batcher, releaser } = this.#parts;
    const { request } = acquisition;
    this.#inFlight.begin();
    batcher.send('acquire', {
      request,
      timeoutMs: timeoutOf(acquisition),
      onResult: (result, sentAt) => {
        this.#inFlight.end();
        onResult(result, sentAt);
      },
      onLateResult: (result, sentAt) => {
        if (result.kind === 'granted') releaser.release(request, lastsUntil(acquisition, sentAt));
      },
    });
  }
}

type OnResult = (result: AcquireResult, sentAt: Moment) => void;

/** A grant that arrives after half of its lease is of no use. */
const timeoutOf = ({ request, maxResultWaitMs }: Acquisition) =>
  Math.min(request.leaseMs / 2, MAX_REQUEST_TIMEOUT_MS, roundUpToStep(maxResultWaitMs));

const roundUpToStep = (ms: number) => Math.ceil(ms / TIMEOUT_STEP_MS) * TIMEOUT_STEP_MS;

/** The monotonic time until which the lease may last in the store, however late the request arrives there. */
const lastsUntil = ({ request }: Acquisition, sentAt: Moment) =>
  sentAt.monotonicMs + MAX_REQUEST_TIMEOUT_MS + request.leaseMs;

/** Whether the request may have taken effect, or may still do so. */
const mayStillTakeEffect = (result: AcquireResult) => result.kind === 'unknown' && result.wasSent !== false;

const isStoreTimeout = (result: AcquireResult) =>
  result.kind === 'unknown' && result.cause instanceof StoreTimeoutError;

/** Whether the connection was lost before the result arrived. A retry over another connection may succeed. */
export const isConnectionLost = (result: Grant | NotGranted): boolean =>
  !(result instanceof Grant) && result.kind === 'unknown' && result.isConnectionLost === true;
