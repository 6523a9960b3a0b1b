import type { BatchResult, OnResult, RequestBatch } from '../../../core/backend.js';
import type { AcquireResult, Granted, ReleaseResult, RenewResult } from '../../../core/backend-results.js';
import type { ReleaseNotice } from '../../../core/store-notices.js';
import type { LockRecord } from '../../../core/lock-record.js';
import { PAUSED_ATTEMPT, type TickRefused, type TickState } from '../../../core/tick.js';
import { type UnknownResult, unknownResult } from '../../../core/unknown-result.js';
import { keyOfLockKey } from './lock-keys.js';
import { LONE_RELEASE, type ScriptRequest } from './script-requests.js';

/** The reply of the script to one request, or what is known without it. */
export type ScriptReply = string | Granted | UnknownResult;

/** What the script replied to a call: the server's time in µs, then the reply to each request. */
export function parseCallReply(
  reply: unknown,
  [first]: readonly ScriptRequest[],
): readonly [timeUs: string, firstReply: string, ...others: string[]] {
  // The time alone is the reply to a single request that was granted or released.
  if (typeof reply === 'string') return [reply, first?.command === LONE_RELEASE ? 'released' : 'granted'];
  return reply as readonly [string, string, ...string[]];
}

/** The results of a batch. `onQueued` returns whether a queued request will be notified of a release. */
export function parseReplies(
  batch: RequestBatch,
  replies: readonly ScriptReply[],
  onQueued: () => boolean,
): BatchResult {
  const { release, renew } = batch;
  const { renewFrom, acquireFrom } = placesOf(batch);
  return {
    release: release ? replies.slice(0, renewFrom).map(parseReleaseReply) : [],
    renew: renew ? replies.slice(renewFrom, acquireFrom).map(parseRenewReply) : [],
    acquire: replies.slice(acquireFrom).map((reply) => parseAcquireReply(reply, onQueued)),
  };
}

/** Returns a function that reports the result of one request of a batch before those of the others are known. */
export function createReplyReporter(
  batch: RequestBatch,
  onResult: OnResult,
  onQueued: () => boolean,
): (reply: ScriptReply, index: number) => void {
  const { renewFrom, acquireFrom } = placesOf(batch);
  return (reply, index) => {
    if (index < renewFrom) onResult('release', index, parseReleaseReply(reply));
    else if (index < acquireFrom) onResult('renew', index - renewFrom, parseRenewReply(reply));
    else onResult('acquire', index - acquireFrom, parseAcquireReply(reply, onQueued));
  };
}

/** Where the replies to renewals and to acquisitions begin: those to releases come first. */
function placesOf({ release, renew }: RequestBatch) {
  const renewFrom = release?.length ?? 0;
  return { renewFrom, acquireFrom: renewFrom + (renew?.length ?? 0) };
}

const parseReleaseReply = (reply: ScriptReply): ReleaseResult =>
  typeof reply === 'string' ? { kind: reply as 'released' | 'gone' } : (reply as UnknownResult);

function parseRenewReply(reply: ScriptReply): RenewResult {
  if (typeof reply !== 'string') return reply as UnknownResult;
  const [kind, token] = reply.split(' ') as ['renewed' | 'lost', string?];
  return token === undefined ? { kind } : { kind: 'renewed', fencingToken: BigInt(token) };
}

function parseAcquireReply(reply: ScriptReply, onQueued: () => boolean): AcquireResult {
  if (typeof reply !== 'string') return reply;
  const [kind, first = '', second, third] = reply.split(' ');
  switch (kind) {
    case 'granted': // `granted token`, and for a tick also the attempt.
      return {
        kind,
        fencingToken: BigInt(first),
        ...(second && { attempt: Number(second) % PAUSED_ATTEMPT }),
      };
    case 'taken':
      if (!second) return { kind, remainingMs: Number(first) };
      return {
        kind,
        remainingMs: Number(first),
        isQueued: true,
        ...(onQueued() && { willBeNotified: true }),
      };
    case 'refused':
      return toTickRefused(first as TickRefused['reason'], Number(second), third);
    default:
      return unknownResult(lateRequestError());
  }
}

export const lateRequestError = () => new Error('the request reached Redis too late, or its clock was set');

function toTickRefused(reason: TickRefused['reason'], aheadMs: number, more?: string): TickRefused {
  const refused = { kind: 'refused', reason, aheadMs } as const;
  if (!more) return refused;
  return { ...refused, [reason === 'unfinished' ? 'unfinishedMs' : 'retryInMs']: Number(more) };
}

/** The reply to `inspect`. */
export function parseLockRecord(reply: string): LockRecord | null {
  if (reply === 'free') return null;
  const [, token = '', remainingMs, queued, holder = '', sinceUs, ...instance] = reply.split(' ');
  return {
    holder,
    instance: instance.join(' '),
    fencingToken: BigInt(token),
    sinceMs: Math.floor(Number(sinceUs) / 1_000),
    remainingMs: Number(remainingMs),
    queued: Number(queued),
  };
}

/** The reply to `readTicks`. Its columns are those of a lock; the last one is blank if no tick was claimed. */
export function parseTickState(reply: string): TickState {
  const [nowUs, heldForMs, aliveUntilUs, tick = ''] = reply.split(' ');
  return {
    nowMs: Number(nowUs) / 1_000,
    ...parseTickColumn(tick),
    heldForMs: Number(heldForMs),
    aliveUntilMs: Number(aliveUntilUs) / 1_000,
  };
}

function parseTickColumn(tick: string): Pick<TickState, 'claimed' | 'isPaused'> {
  if (tick === '') return { claimed: undefined };
  const attempt = Number(tick.slice(13));
  const claimed = { tickMs: Number(tick.slice(0, 13)), attempt: attempt % PAUSED_ATTEMPT };
  return attempt >= PAUSED_ATTEMPT ? { claimed, isPaused: true } : { claimed };
}

/** Parses a message of the script: how soon the key may be free, then its Redis key. */
export function parseNotification(message: string, keyPrefix: string): ReleaseNotice {
  const at = message.indexOf(' ');
  return { inMs: Number(message.slice(0, at)), key: keyOfLockKey(message.slice(at + 1), keyPrefix) };
}
