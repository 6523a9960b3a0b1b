import type { AcquireRequest, ReleaseRequest, RenewRequest, RequestBatch } from '../../../core/backend.js';
import type { TickClaim } from '../../../core/tick.js';
import { TICK_MEMORY_MS } from './stored-lock.js';

/** One request to the lock script. */
export interface ScriptRequest {
  readonly key: string;
  /** A verb of the script with its parameters. */
  readonly command: string;
  /** For `forceRelease`, the fencing token instead; for `pause` and `resume`, the latest server time in µs. */
  readonly holder: string;
}

/** A release whose request is the only one of its call, of a grant of which only the first token was used. */
export const LONE_RELEASE = 'release lone';
const RENEW = 'renew ';

export const isRenewal = ({ command }: ScriptRequest) => command.startsWith(RENEW);

/** Encodes batches. Acquisitions of one process mostly have the same parameters, and then share the encoded command. */
export class RequestEncoder {
  #previous: AcquireRequest | undefined;
  #command = '';

  /** The requests of a batch: releases, renewals, then acquisitions. */
  encode({ release = [], renew = [], acquire = [] }: RequestBatch): ScriptRequest[] {
    const isLone = release.length + renew.length + acquire.length === 1;
    const requests: ScriptRequest[] = [];
    for (const each of release) requests.push(encodeRelease(each, isLone));
    for (const each of renew) requests.push(encodeRenewal(each));
    for (const each of acquire)
      requests.push({ key: each.key, holder: each.holder, command: this.#commandOf(each) });
    return requests;
  }

  #commandOf(request: AcquireRequest): string {
    if (!this.#previous || !haveSameCommand(this.#previous, request)) this.#command = encodeAcquire(request);
    this.#previous = request;
    return this.#command;
  }
}

function encodeRelease(
  { key, holder, hasEnded, usedOneToken }: ReleaseRequest,
  isLone: boolean,
): ScriptRequest {
  if (hasEnded) return { key, holder, command: 'finish' };
  return { key, holder, command: isLone && usedOneToken ? LONE_RELEASE : 'release' };
}

function encodeRenewal({ key, holder, leaseMs, moreTokens }: RenewRequest): ScriptRequest {
  const command = moreTokens ? `${RENEW}${leaseMs} ${moreTokens}` : `${RENEW}${leaseMs}`;
  return { key, holder, command };
}

/** `untilMs`: the latest server time at which the request may take effect. */
export const encodePause = (key: string, isPaused: boolean, untilMs: number): ScriptRequest => ({
  key,
  holder: (untilMs * 1_000).toFixed(0).padStart(16, '0'),
  command: isPaused ? 'pause' : 'resume',
});

const haveSameCommand = (one: AcquireRequest, other: AcquireRequest) =>
  one.leaseMs === other.leaseMs &&
  one.tokenCount === other.tokenCount &&
  one.retryWithinMs === other.retryWithinMs &&
  one.instance === other.instance &&
  one.tick === other.tick;

const encodeAcquire = ({ leaseMs, tokenCount = 1, retryWithinMs = 0, tick, instance }: AcquireRequest) =>
  tick
    ? `claim ${leaseMs} ${tokenCount} 0 ${encodeTick(tick)} ${instance}`
    : `acquire ${leaseMs} ${tokenCount} ${retryWithinMs} ${instance}`;

function encodeTick(tick: TickClaim): string {
  const {
    tickMs,
    maxEarlyMs,
    staleAfterMs,
    takeoverWithinMs = staleAfterMs,
    maxAttempts = 1,
    cleanUp,
  } = tick;
  const rememberMs = Math.ceil(cleanUp?.afterMs ?? TICK_MEMORY_MS);
  const pastLimits = [staleAfterMs, takeoverWithinMs].map((ms) => Math.min(ms, Number.MAX_SAFE_INTEGER));
  return [tickMs, maxEarlyMs, ...pastLimits, maxAttempts, rememberMs].join(' ');
}
