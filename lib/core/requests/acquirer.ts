import { randomBytes } from 'node:crypto';
import { withTimeout } from './with-timeout.js';
import { MIN_RESULT_WAIT_MS } from '../waiting/waiter.js';
import { type AcquireResult, type AcquireRequest, type Granted, unknownResult } from '../backend.js';
import { type Clock, type Moment } from '../clock.js';
import type { PendingAcquireRequest } from './batch.js';
import { type Batcher, MAX_REQUEST_TIMEOUT_MS } from './batcher.js';
import { LockShutdownError } from '../errors.js';
import type { Events } from '../events.js';
import type { Releaser } from '../leases/releaser.js';
import { Grant } from '../leases/grant.js';
import { StoreTimeoutError } from './store-timeout-error.js';
import { InFlight } from './in-flight.js';

/** One question for a key. */
interface Acquisition {
  /** The key as its user knows it. */
  readonly key: string;
  readonly request: AcquireRequest;
  /** How long the caller would wait for the lock, and so at least for the answer. */
  readonly waitMs: number;
}

/** Why a key was not granted. */
export type NotGranted = Exclude<AcquireResult, Granted>;

/** Who asked. */
export interface AcquireListener {
  onResult(result: Grant | NotGranted): void;
}

interface AcquirerParts {
  readonly clock: Clock;
  readonly events: Events;
  readonly batcher: Batcher;
  readonly releaser: Releaser;
}

const TIMEOUT_STEP_MS = 50;

/** Asks the store for a key once, and withdraws what nobody can know. */
export class Acquirer {
  readonly #parts: AcquirerParts;
  readonly #inFlight = new InFlight();
  readonly #session = randomBytes(12).toString('base64url');
  #acquisitions = 0;
  #isClosed = false;

  constructor(parts: AcquirerParts) {
    this.#parts = parts;
  }

  /** The identity of a new acquisition. */
  newHolder(): string {
    this.#acquisitions += 1;
    return `${this.#session}:${this.#acquisitions.toString(36)}`;
  }

  acquire(acquisition: Acquisition, listener: AcquireListener): void {
    this.#send(acquisition, (result, sentAt) => {
      if (result.kind === 'granted') listener.onResult(this.#createGrant(acquisition, result, sentAt));
      else {
        if (mayStillTakeEffect(result)) this.#withdraw(acquisition, sentAt);
        listener.onResult(this.#reportIfUnknown(acquisition, result));
      }
    });
  }

  /**
   * Asks for a tick. If the answer is lost, the claim may have used the tick up for everybody: then it is sent once more,
   * as the same run may ask for its grant again.
   */
  async claim(acquisition: Acquisition): Promise<Grant | NotGranted> {
    const [first, firstSentAt] = await this.#claimOnce(acquisition);
    if (first.kind === 'granted') return this.#createClaimGrant(acquisition, first, firstSentAt);
    if (!mayStillTakeEffect(first)) return this.#reportIfUnknown(acquisition, first);
    const tookMs = this.#parts.clock.monotonicMs() - firstSentAt.monotonicMs;
    const isTooLate = isStoreTimeout(first) && tookMs >= timeoutOf(acquisition) / 2;
    const [result, sentAt] = isTooLate ? [first, firstSentAt] : await this.#claimOnce(acquisition);
    if (result.kind === 'granted') return this.#createClaimGrant(acquisition, result, sentAt);
    this.#withdraw(acquisition, sentAt);
    return this.#reportIfUnknown(acquisition, result);
  }

  /** Waits for the answers that are still to come, but not longer than that. */
  async whenSettled(timeoutMs: number): Promise<void> {
    await withTimeout(this.#parts.clock, timeoutMs, this.#inFlight.whenIdle(), { awaited: true });
  }

  /** What is granted from now on lapses by itself. */
  close(): void {
    this.#isClosed = true;
  }

  #claimOnce(acquisition: Acquisition): Promise<[AcquireResult, Moment]> {
    return new Promise((resolve) => {
      this.#send(acquisition, (result, sentAt) => resolve([result, sentAt]));
    });
  }

  #createClaimGrant(acquisition: Acquisition, result: Granted, sentAt: Moment): Grant | NotGranted {
    const grant = this.#createGrant(acquisition, result, sentAt);
    if (grant instanceof Grant) grant.attempt = result.attempt ?? 1;
    return grant;
  }

  #createGrant(acquisition: Acquisition, { fencingToken }: Granted, sentAt: Moment): Grant | NotGranted {
    const { key, request } = acquisition;
    if (this.#isClosed) return unknownResult(new LockShutdownError('The application has ended.', { key }));
    const lastsUntilMs = lastsUntil(acquisition, sentAt);
    return new Grant({ key, request, fencingToken, sentAt, lastsUntilMs }, this.#parts.clock);
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
    this.#inFlight.begin();
    const { batcher, releaser } = this.#parts;
    batcher.send(
      'acquire',
      new PendingAcquisition({ acquisition, onResult, releaser, inFlight: this.#inFlight }),
    );
  }
}

type OnResult = (result: AcquireResult, sentAt: Moment) => void;

interface PendingAcquisitionParts {
  readonly acquisition: Acquisition;
  readonly onResult: OnResult;
  readonly releaser: Releaser;
  readonly inFlight: InFlight;
}

/** A question on its way. */
class PendingAcquisition implements PendingAcquireRequest {
  readonly request: AcquireRequest;
  readonly timeoutMs: number;
  readonly #acquisition: Acquisition;
  readonly #onResult: OnResult;
  readonly #releaser: Releaser;
  readonly #inFlight: InFlight;

  constructor({ acquisition, onResult, releaser, inFlight }: PendingAcquisitionParts) {
    this.request = acquisition.request;
    this.timeoutMs = timeoutOf(acquisition);
    this.#acquisition = acquisition;
    this.#onResult = onResult;
    this.#releaser = releaser;
    this.#inFlight = inFlight;
  }

  onResult(result: AcquireResult, sentAt: Moment): void {
    this.#inFlight.end();
    this.#onResult(result, sentAt);
  }

  onLateResult(result: AcquireResult, sentAt: Moment): void {
    if (result.kind === 'granted')
      this.#releaser.release(this.request, lastsUntil(this.#acquisition, sentAt));
  }
}

/** With half of the lease gone, an answer is not worth handing out. */
const timeoutOf = ({ request, waitMs }: Acquisition) =>
  Math.min(request.leaseMs / 2, MAX_REQUEST_TIMEOUT_MS, Math.max(MIN_RESULT_WAIT_MS, roundUpToStep(waitMs)));

/** So that few limits differ in a batch: each of them is looked at by itself. */
const roundUpToStep = (ms: number) => Math.ceil(ms / TIMEOUT_STEP_MS) * TIMEOUT_STEP_MS;

/** The monotonic time until which the request, however late it arrives, may make the lease last in the store. */
const lastsUntil = ({ request }: Acquisition, sentAt: Moment) =>
  sentAt.monotonicMs + MAX_REQUEST_TIMEOUT_MS + request.leaseMs;

/** The request may have taken effect, or may yet do so. */
const mayStillTakeEffect = (result: AcquireResult) => result.kind === 'unknown' && result.wasSent !== false;

const isStoreTimeout = (result: AcquireResult) =>
  result.kind === 'unknown' && result.cause instanceof StoreTimeoutError;

/** Asked again, over another connection, the store may answer. */
export const isConnectionLost = (result: Grant | NotGranted): boolean =>
  !(result instanceof Grant) && result.kind === 'unknown' && result.isConnectionLost === true;
