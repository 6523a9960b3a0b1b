import type {
  AcquireRequest,
  AcquireResult,
  BatchResult,
  Granted,
  ReleaseRequest,
  ReleaseResult,
  RenewRequest,
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

/** What a call needs besides its requests. */
interface LoneOptions {
  /** The lock script. */
  readonly script: Script;
  /** The latest server time in µs at which an acquisition may take effect; `undefined`: any. */
  readonly notAfterUs: number | undefined;
  /** The channel on which this process receives notifications. */
  readonly channel: string;
}

interface RunOptions extends LoneOptions {
  /** With one key, the lock, the server reads less, and replies `needsQueue` if the request needs all three. */
  readonly keysPerRequest: 1 | 3;
}

/** A release whose request is the only one of its call, of a grant of which only the first token was used. */
const LONE_RELEASE = 'release lone';
/** A time in µs that never comes, in 16 digits. */
const FOREVER = '9'.repeat(16);

const headerOf = ({ notAfterUs, channel }: LoneOptions, keysPerRequest: number) =>
  `${notAfterUs?.toFixed(0).padStart(16, '0') ?? FOREVER} ${keysPerRequest} ${channel}`;

/** Runs a single request. {@link parseLoneReply} parses its reply. Rejects if the server does not know the script. */
export function runLoneRequest(
  runner: ScriptRunner,
  { key, command, holder }: ScriptRequest,
  options: LoneOptions,
): Promise<unknown> {
  const { sha1 } = options.script;
  const [lock, queue, waiters] = [lockKeyOf(key), `{${key}}:line`, `{${key}}:waiting`];
  return command === LONE_RELEASE
    ? runner.evalsha(sha1, 3, lock, queue, waiters, holder)
    : runner.evalsha(sha1, 3, lock, queue, waiters, headerOf(options, 3), command, holder);
}

/** The reply to a single request: the server's time in µs, and the outcome. */
export function parseLoneReply(reply: unknown, command: string): readonly [timeUs: string, outcome: string] {
  // The time alone is the reply if it was granted or released.
  if (typeof reply !== 'string') return reply as readonly [string, string];
  return [reply, command === LONE_RELEASE ? 'released' : 'granted'];
}

/**
 * Runs all requests in one script call.
 *
 * @returns the server's time in µs, then the reply to each request
 */
export async function runScript(
  runner: ScriptRunner,
  requests: readonly ScriptRequest[],
  { keysPerRequest, ...options }: RunOptions,
): Promise<readonly string[]> {
  const values: string[] = [];
  for (const { key } of requests) {
    values.push(lockKeyOf(key));
    if (keysPerRequest === 3) values.push(`{${key}}:line`, `{${key}}:waiting`);
  }
  const keyCount = values.length;
  const [first, ...others] = requests;
  const command = others.length === 0 ? first?.command : undefined;
  if (command !== LONE_RELEASE) values.push(headerOf(options, keysPerRequest));
  if (first && command !== undefined) {
    if (command !== LONE_RELEASE) values.push(command);
    values.push(first.holder);
  } else appendRequestRows(values, requests, (rowCommand) => [rowCommand, '0']);
  const reply = await evaluate(runner, options.script, keyCount, values);
  return command === undefined ? (reply as readonly string[]) : parseLoneReply(reply, command);
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

/** Encodes batches. Acquisitions of one process mostly have the same parameters, and then share the encoded command. */
export class RequestEncoder {
  #previous: AcquireRequest | undefined;
  #command = '';

  /** The requests of a batch: releases, renewals, then acquisitions. */
  encode({ release, renew, acquire }: RequestBatch): ScriptRequest[] {
    const requests: ScriptRequest[] = [];
    const isLone = release?.length === 1 && !renew && !acquire;
    if (release) for (const each of release) requests.push(encodeRelease(each, isLone));
    if (renew) for (const each of renew) requests.push(encodeRenewal(each));
    if (acquire)
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
  { release, renew }: RequestBatch,
  replies: readonly ScriptReply[],
  onQueued: () => boolean,
): BatchResult {
  const renewFrom = release?.length ?? 0;
  const acquireFrom = renewFrom + (renew?.length ?? 0);
  return {
    release: release ? replies.slice(0, renewFrom).map(parseReleaseReply) : [],
    renew: renew ? replies.slice(renewFrom, acquireFrom).map(parseRenewReply) : [],
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
