import { randomBytes } from 'node:crypto';
import type { AcquireRequest } from '../backend.js';
import type { AcquireResult, Granted } from '../backend-results.js';
import { unknownResult } from '../unknown-result.js';
import { type Clock, type Moment } from '../clock.js';
import { LockShutdownError } from '../errors.js';
import type { EventSubject, Events } from '../events.js';
import { createHolder } from '../holder.js';
import { type Batcher, MAX_REQUEST_TIMEOUT_MS } from '../requests/batcher.js';
import { InFlight } from '../requests/in-flight.js';
import { PendingRequest } from '../requests/pending-request.js';
import { StoreTimeoutError } from '../requests/store-timeout.js';
import { Grant } from './grant.js';
import type { Releaser } from './releaser.js';

/** One attempt to acquire a key. */
interface AcquisitionParams extends EventSubject {
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
  readonly #processId = randomBytes(12).toString('base64url');
  #acquisitions = 0;
  #isClosed = false;

  constructor(parts: AcquirerParts) {
    this.#parts = parts;
  }

  /** Returns a new holder: the identity of one acquisition. */
  newHolder(isOfWriter?: boolean): string {
    this.#acquisitions += 1;
    return createHolder(this.#processId, this.#acquisitions, isOfWriter);
  }

  /** Calls back with the result, exactly once. */
  acquire(params: AcquisitionParams, onResult: (result: Grant | NotGranted) => void): void {
    this.#send(params, (result, sentAt) => {
      if (mayStillTakeEffect(result)) this.#withdraw(params, sentAt);
      onResult(this.#resultOf(params, result, sentAt));
    });
  }

  /**
   * Acquires the lock of a run. If the outcome is unknown, the store may have granted the tick to this claim, and no other
   * replica could run it. The claim is therefore repeated once: the same holder gets the same grant again. After its whole
   * timeout it is not repeated, because a late reply then releases what it grants.
   */
  async claim(params: AcquisitionParams): Promise<Grant | NotGranted> {
    const startedAtMs = this.#parts.clock.monotonicMs();
    let [result, sentAt] = await this.#claimOnce(params);
    if (!mayStillTakeEffect(result)) return this.#resultOf(params, result, sentAt);
    let newest = params;
    const tookMs = this.#parts.clock.monotonicMs() - startedAtMs;
    const isTooLate = isStoreTimeout(result) && tookMs >= timeoutOf(params) / 2;
    if (!isTooLate) {
      // Without a tick, the store could grant the first request after the run has ended, so the second has another holder.
      if (!params.request.tick) {
        this.#withdraw(params, sentAt);
        newest = { ...params, request: { ...params.request, holder: this.newHolder() } };
      }
      const [again, at] = await this.#claimOnce(newest);
      result = again;
      // It may never have been sent, unlike the first.
      if (at.monotonicMs > sentAt.monotonicMs) sentAt = at;
    }
    if (result.kind !== 'granted') this.#withdraw(newest, sentAt);
    return this.#resultOf(newest, result, sentAt);
  }

  /** Resolves when every acquisition has its result. */
  whenSettled(): Promise<void> {
    return this.#inFlight.whenIdle();
  }

  /** Ignores grants from now on. Their leases expire. */
  close(): void {
    this.#isClosed = true;
  }

  #claimOnce(params: AcquisitionParams): Promise<[AcquireResult, Moment]> {
    return new Promise((resolve) => {
      this.#send(params, (result, sentAt) => resolve([result, sentAt]));
    });
  }

  #resultOf(params: AcquisitionParams, result: AcquireResult, sentAt: Moment): Grant | NotGranted {
    const { clock, events } = this.#parts;
    const { key, request } = params;
    if (result.kind === 'unknown') {
      const operation = request.tick ? 'claim-tick' : 'acquire';
      events.emit('unavailable', { key, operation, cause: result.cause }, params);
    }
    if (result.kind !== 'granted') return result;
    if (this.#isClosed) return unknownResult(new LockShutdownError('The application has ended.', { key }));
    const latestStoreEndMs = latestStoreEnd(params, sentAt);
    return new Grant({ key, request, granted: result, sentAt, latestStoreEndMs }, clock);
  }

  #withdraw(params: AcquisitionParams, sentAt: Moment): void {
    this.#parts.releaser.withdraw(params.request, latestStoreEnd(params, sentAt));
  }

  #send(params: AcquisitionParams, onResult: OnResult): void {
    this.#inFlight.begin();
    this.#parts.batcher.send(new Acquisition(params, onResult, this.#parts.releaser, this.#inFlight));
  }
}

type OnResult = (result: AcquireResult, sentAt: Moment) => void;

class Acquisition extends PendingRequest<'acquire'> {
  readonly #onResult: OnResult;
  readonly #releaser: Releaser;
  readonly #inFlight: InFlight;

  constructor(params: AcquisitionParams, onResult: OnResult, releaser: Releaser, inFlight: InFlight) {
    super('acquire', params.request, timeoutOf(params));
    this.#onResult = onResult;
    this.#releaser = releaser;
    this.#inFlight = inFlight;
  }

  protected onResult(result: AcquireResult, sentAt: Moment): void {
    this.#inFlight.end();
    this.#onResult(result, sentAt);
  }

  protected override onLateResult(result: AcquireResult, sentAt: Moment): void {
    if (result.kind === 'granted') this.#releaser.release(this.request, latestStoreEnd(this, sentAt));
  }
}

/** A grant that arrives after half of its lease is of no use. */
const timeoutOf = ({ request, maxResultWaitMs }: AcquisitionParams) =>
  Math.min(request.leaseMs / 2, MAX_REQUEST_TIMEOUT_MS, roundUpToStep(maxResultWaitMs));

const roundUpToStep = (ms: number) => Math.ceil(ms / TIMEOUT_STEP_MS) * TIMEOUT_STEP_MS;

/** The monotonic time until which the lease may last in the store, however late the request arrives there. */
const latestStoreEnd = ({ request }: { request: AcquireRequest }, sentAt: Moment) =>
  sentAt.monotonicMs + MAX_REQUEST_TIMEOUT_MS + request.leaseMs;

/** Whether the request may have taken effect, or may still do so. */
const mayStillTakeEffect = (result: AcquireResult) => result.kind === 'unknown' && result.wasSent !== false;

const isStoreTimeout = (result: AcquireResult) =>
  result.kind === 'unknown' && result.cause instanceof StoreTimeoutError;

/** Whether the connection was lost before the result arrived. A retry over another connection may succeed. */
export const isConnectionLost = (result: Grant | NotGranted): boolean =>
  !(result instanceof Grant) && result.kind === 'unknown' && result.isConnectionLost === true;
