import type {
  AcquireRequest,
  AcquireResult,
  BatchResult,
  Granted,
  ReleaseResult,
  RenewResult,
  RequestBatch,
} from '../../../core/backend.js';
import type { LockRecord } from '../../../core/lock-record.js';
import type { TickClaim, TickRefused, TickState } from '../../../core/tick.js';
import type { UnknownResult } from '../../../core/unknown-result.js';
import { unknownResult } from '../../../core/unknown-result.js';
import { type Script, type ScriptRunner, appendRequestRows, evaluate } from '../script-runner.js';
import { TICK_MEMORY_MS } from './lock-columns.js';

/** One request to the lock script. */
export interface ScriptRequest {
  readonly key: string;
  /** A verb of the script with its parameters. */
  readonly command: string;
  /** For `forceRelease`, the fencing token instead. */
  readonly holder: string;
}

/** The reply of the script to one request, or what is known without it. */
export type ScriptReply = string | Granted | UnknownResult;

/** What all requests of one call share. */
interface RunOptions {
  /** The lock script. */
  readonly script: Script;
  /** The latest server time in µs at which an acquisition may take effect; `undefined`: any. */
  readonly notAfterUs: number | undefined;
  /** The channel on which this process receives notifications. */
  readonly channel: string;
  /** With one key, the lock, the server reads less, and replies `needsQueue` if the request needs all three. */
  readonly keysPerRequest: 1 | 3;
}

/** A release whose request is the only one of its call, of a grant of which only the first token was used. */
const LONE_RELEASE = 'release lone';
/** A time in µs that never comes, in 16 digits. */
const FOREVER = '9'.repeat(16);

/**
 * Runs all requests in one script call.
 *
 * @returns the server's time in µs, then the reply to each request
 */
export async function runScript(
  runner: ScriptRunner,
  requests: readonly ScriptRequest[],
  { script, notAfterUs, channel, keysPerRequest }: RunOptions,
): Promise<readonly string[]> {
  const values: string[] = [];
  for (const { key } of requests) {
    values.push(lockKeyOf(key));
    if (keysPerRequest === 3) values.push(`{${key}}:line`, `{${key}}:waiting`);
  }
  const keyCount = values.length;
  const [first, ...others] = requests;
  const isLoneRelease = first?.command === LONE_RELEASE;
  if (!isLoneRelease)
    values.push(`${notAfterUs?.toFixed(0).padStart(16, '0') ?? FOREVER} ${keysPerRequest} ${channel}`);
  if (others.length > 0) appendRequestRows(values, requests, (command) => [command, '0']);
  else if (isLoneRelease) values.push(first.holder);
  else if (first) values.push(first.command, first.holder);
  const reply = (await evaluate(runner, script, keyCount, values)) as string | readonly string[];
  // The time alone is the reply to a single request that was granted or released.
  return typeof reply === 'string' ? [reply, isLoneRelease ? 'released' : 'granted'] : reply;
}

const LOCK_SUFFIX = '}:lock';

/** The Redis key of a lock. Its other keys differ only in the suffix, and are on the same slot of a Cluster. */
export const lockKeyOf = (key: string) => `{${key}${LOCK_SUFFIX}`;

/** The key of a lock, from its Redis key without the prefix of ioredis. */
export const keyOfLockKey = (lockKey: string) => lockKey.slice(1, -LOCK_SUFFIX.length);

/** The SCAN pattern of the Redis keys of locks, from the start of their keys. */
export const lockPatternOf = (escapedPrefix: string) => `{${escapedPrefix}*${LOCK_SUFFIX}`;

/** Parses a message of the script: how soon the key may be free, then its Redis key. */
export function parseNotification(message: string, keyPrefix: string): { key: string; inMs: number } {
  const at = message.indexOf(' ');
  const lockKey = message.slice(at + 1 + keyPrefix.length);
  return { inMs: Number(message.slice(0, at)), key: keyOfLockKey(lockKey) };
}

const RENEW = 'renew ';

export const isRenewal = ({ command }: ScriptRequest) => command.startsWith(RENEW);

/** The requests of a batch: releases, renewals, then acquisitions. */
export function encodeBatch({ release = [], renew = [], acquire = [] }: RequestBatch): ScriptRequest[] {
  const requests: ScriptRequest[] = [];
  const isLone = release.length === 1 && renew.length + acquire.length === 0;
  for (const { key, holder, hasEnded, usedOneToken } of release) {
    const command = isLone && usedOneToken ? LONE_RELEASE : 'release';
    requests.push({ key, holder, command: hasEnded ? 'finish' : command });
  }
  for (const { key, holder, leaseMs, moreTokens } of renew) {
    const command = moreTokens ? `${RENEW}${leaseMs} ${moreTokens}` : `${RENEW}${leaseMs}`;
    requests.push({ key, holder, command });
  }
  // Acquisitions of one process mostly have the same parameters, and then share the encoded command.
  let previous: AcquireRequest | undefined;
  let command = '';
  for (const request of acquire) {
    if (!previous || !haveSameCommand(previous, request)) command = encodeAcquire(request);
    previous = request;
    requests.push({ key: request.key, holder: request.holder, command });
  }
  return requests;
}

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
  const { tickMs, maxEarlyMs, staleAfterMs, maxAttempts = 1, cleanUp } = tick;
  const rememberMs = Math.ceil(cleanUp?.afterMs ?? TICK_MEMORY_MS);
  const limits = [tickMs, maxEarlyMs, Math.min(staleAfterMs, Number.MAX_SAFE_INTEGER), maxAttempts];
  return [...limits, rememberMs].join(' ');
}

/** The results of a batch. `onQueued` returns whether a queued request will be notified of a release. */
export function parseReplies(
  { release = [], renew = [] }: RequestBatch,
  replies: readonly ScriptReply[],
  onQueued: () => boolean,
): BatchResult {
  const renewFrom = release.length;
  const acquireFrom = renewFrom + renew.length;
  return {
    release: replies.slice(0, renewFrom).map(parseReleaseReply),
    renew: replies.slice(renewFrom, acquireFrom).map(parseRenewReply),
    acquire: replies.slice(acquireFrom).map((reply) => parseAcquireReply(reply, onQueued)),
  };
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
      return { kind, fencingToken: BigInt(first), ...(second && { attempt: Number(second) }) };
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
      return unknownResult(new Error('the request reached Redis too late, or its clock was set'));
  }
}

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
    claimed: tick === '' ? undefined : { tickMs: Number(tick.slice(0, 13)), attempt: Number(tick.slice(13)) },
    heldForMs: Number(heldForMs),
    aliveUntilMs: Number(aliveUntilUs) / 1_000,
  };
}
