import {
  type AcquireAnswer,
  type AcquireRequest,
  type Answers,
  type Freed,
  type Granted,
  type LockBackend,
  type LockRecord,
  type ReleaseAnswer,
  type RenewAnswer,
  type Requests,
  type TickClaim,
  type TickRefused,
  type Unknown,
  connectionLost,
  neverSent,
  unknown,
} from '../../core/backend.js';
import { systemClock } from '../../core/clock.js';
import { NoAnswerInTime } from '../../core/no-answer-in-time.js';
import { reasonOf } from '../../core/shown.js';
import { Calls } from './calls.js';
import { checkRedisSource } from './check-redis-source.js';
import {
  Connection,
  type RedisSource,
  callConnection,
  checkIsPrimary,
  isCluster,
  isConnectionLost,
  keyPrefixOf,
} from './connection.js';
import { TICK_MEMORY_MS } from './lua.js';
import { addNote, readNotes } from './notes.js';
import { type ReplicaOptions, Replicas } from './replicas.js';
import { type ScriptRequest, type ScriptRunner, callFrom, lockKeyOf, runScript } from './script.js';
import { slotBySlot, slotOf } from './slots.js';

/**
 * More in one run would keep the server from its other clients for too long. And while it works on one run, the next one
 * is put together and the answers of the last one are heard: so several are better than one.
 */
const MOST_AT_ONCE = 64;
/** Nobody waits for renewals. */
const MOST_RENEWALS_AT_ONCE = 200;
/** So many hardly ever meet others at their keys: they ask without the keys that it takes to stand in line. */
const MANY = 8;

/** Where to find Redis, and for how many replicas to wait. */
export type RedisBackendOptions = RedisSource & ReplicaOptions;

type Told = string | Granted | Unknown;

interface Run {
  readonly limitMs: number;
  readonly giveUpAtMs: number;
  readonly keysEach: 1 | 3;
  readonly slot: number;
}

/** Where one server keeps everything. */
const ONLY_SLOT = 0;

const RENEW = 'renew ';
const GRANTED = 'granted ';

/**
 * Locks in one Redis (>= 6.2), Valkey, Sentinel group or Cluster, over a connection of our own.
 *
 * Exclusive as long as the server keeps what it acknowledged (no restart without persistence, no failover to a
 * replica that lags behind) and its clock does not jump. The fencing token orders grants even then.
 */
export class RedisBackend implements LockBackend {
  readonly name = 'redis';
  readonly enoughAtOnce = 32;
  readonly #connection: Connection;
  readonly #calls: Calls;
  readonly #isCluster: boolean;
  readonly #keyPrefix: string;
  readonly #replicas: Replicas | undefined;
  /**
   * As of the newest reply: how far the server's clock is, at most, ahead of our monotonic one. In a Cluster for each slot,
   * as its servers have clocks of their own.
   */
  readonly #aheadUs: number[] = [];

  constructor(source: RedisBackendOptions) {
    checkRedisSource(source);
    this.#keyPrefix = keyPrefixOf(source);
    const read = (message: string) => callFrom(message, this.#keyPrefix);
    this.#calls = new Calls({ connect: () => callConnection(source), read });
    this.#isCluster = 'client' in source && isCluster(source.client);
    const { minReplicas, replicaTimeoutMs } = source;
    this.#connection = new Connection(source, replicaTimeoutMs);
    this.#replicas = minReplicas === undefined ? undefined : new Replicas(minReplicas, replicaTimeoutMs);
  }

  async exchange({ release = [], renew = [], acquire = [] }: Requests, limitMs: number): Promise<Answers> {
    this.#calls.open();
    const requests: ScriptRequest[] = [];
    for (const { key, holder, hasEnded } of release) {
      requests.push({ key, holder, terms: hasEnded ? 'finish' : 'release' });
    }
    for (const { key, holder, leaseMs, moreTokens } of renew) {
      const terms = moreTokens ? `${RENEW}${leaseMs} ${moreTokens}` : `${RENEW}${leaseMs}`;
      requests.push({ key, holder, terms });
    }
    addAcquisitions(requests, acquire);
    const told = await this.#runAll(requests, limitMs);
    const renewFrom = release.length;
    const acquireFrom = renewFrom + renew.length;
    return {
      release: told.slice(0, renewFrom).map(releaseAnswer),
      renew: told.slice(renewFrom, acquireFrom).map(renewAnswer),
      acquire: told.slice(acquireFrom).map((answer) => this.#acquireAnswer(answer)),
    };
  }

  async inspect(key: string, limitMs: number): Promise<LockRecord | null> {
    const seen = await this.#runOne({ key, holder: '', terms: 'inspect' }, limitMs);
    if (seen === 'free') return null;
    const [, token = '', remainingMs, holder = '', sinceUs, ...instance] = seen.split(' ');
    return {
      holder,
      instance: instance.join(' '),
      fencingToken: BigInt(token),
      sinceMs: Math.floor(Number(sinceUs) / 1_000),
      remainingMs: Number(remainingMs),
    };
  }

  async forceRelease(key: string, fencingToken: bigint, limitMs: number): Promise<boolean> {
    const request: ScriptRequest = { key, holder: String(fencingToken), terms: 'forceRelease' };
    return (await this.#runOne(request, limitMs)) === 'released';
  }

  async note(key: string, text: string, limitMs: number): Promise<void> {
    await this.#askNotes((runner) => addNote(runner, key, text), limitMs);
  }

  notes(key: string, limitMs: number): Promise<readonly string[]> {
    return this.#askNotes((runner) => readNotes(runner, key), limitMs);
  }

  onFreed(listener: (freed: Freed) => void): () => void {
    return this.#calls.listen(listener);
  }

  async check(): Promise<void> {
    const server = await this.#connection.open();
    // The nodes of a Cluster tell where the primary is.
    if (!this.#isCluster) await checkIsPrimary(server);
    await this.#replicas?.check(server);
  }

  close(): Promise<void> {
    this.#connection.close();
    this.#calls.close();
    return Promise.resolve();
  }

  #acquireAnswer(told: Told): AcquireAnswer {
    if (typeof told !== 'string') return told;
    if (told.startsWith(GRANTED)) return grantedAnswer(told);
    const [kind, first = '', second, third] = told.split(' ');
    if (kind === 'taken') {
      const taken = { kind, remainingMs: Number(first) } as const;
      if (!second) return taken;
      this.#calls.start();
      return { ...taken, isInLine: true, ...(this.#calls.isHeard && { isCalled: true }) };
    }
    if (kind === 'refused') {
      return refusedAnswer(first as TickRefused['reason'], Number(second), third);
    }
    return unknown(new Error('the request reached Redis too late, or its clock was set'));
  }

  async #askNotes<T>(ask: (runner: ScriptRunner) => Promise<T>, limitMs: number): Promise<T> {
    const giveUpAtMs = systemClock.monotonicMs() + limitMs;
    try {
      const runner = this.#connection.ready ?? (await this.#connection.open());
      if (systemClock.monotonicMs() > giveUpAtMs) throw new NoAnswerInTime(limitMs);
      return await ask(runner);
    } catch (cause) {
      throw this.#connection.explained(cause);
    }
  }

  async #runOne(request: ScriptRequest, limitMs: number): Promise<string> {
    const [told] = await this.#runAll([request], limitMs);
    if (typeof told === 'string') return told;
    throw (told as Unknown).cause;
  }

  #runAll(requests: readonly ScriptRequest[], limitMs: number): Promise<readonly Told[]> {
    if (!this.#isCluster) return this.#runOn(ONLY_SLOT, requests, limitMs);
    // In a Cluster a run must stay on one slot.
    return slotBySlot(
      requests,
      ({ key }) => slotOf(this.#keyPrefix + lockKeyOf(key)),
      (together, slot) => this.#runOn(slot, together, limitMs),
      (afterMs) => unknown(new NoAnswerInTime(afterMs)),
    );
  }

  #runOn(slot: number, requests: readonly ScriptRequest[], limitMs: number): Promise<readonly Told[]> {
    const atOnce = requests.every(isRenewal) ? MOST_RENEWALS_AT_ONCE : MOST_AT_ONCE;
    if (requests.length <= atOnce) return this.#runChunk(slot, requests, limitMs);
    const chunks: Promise<readonly Told[]>[] = [];
    for (let from = 0; from < requests.length; from += atOnce) {
      chunks.push(this.#runChunk(slot, requests.slice(from, from + atOnce), limitMs));
    }
    return Promise.all(chunks).then((told) => told.flat());
  }

  async #runChunk(
    slot: number,
    requests: readonly ScriptRequest[],
    limitMs: number,
  ): Promise<readonly Told[]> {
    const giveUpAtMs = systemClock.monotonicMs() + limitMs;
    const keysEach = requests.length >= MANY || requests.every(isRenewal) ? 1 : 3;
    let told = await this.#try(requests, { limitMs, giveUpAtMs, keysEach, slot });
    // Half way between two nodes a slot serves one key at a time.
    if (this.#isCluster && told.some(isSplit))
      told = await this.#try(requests, { limitMs, giveUpAtMs, keysEach: 1, slot });
    if (!told.some(isUndone)) return told;
    const undone = requests.filter((_, index) => isUndone(told[index]));
    const again = (await this.#try(undone, { limitMs, giveUpAtMs, keysEach: 3, slot })).values();
    return told.map((first) => (isUndone(first) ? (again.next().value ?? first) : first));
  }

  async #try(
    requests: readonly ScriptRequest[],
    { limitMs, giveUpAtMs, keysEach, slot }: Run,
  ): Promise<readonly Told[]> {
    let wasSent = false;
    try {
      const runner = this.#connection.ready ?? (await this.#connection.open());
      const sentAtMs = systemClock.monotonicMs();
      if (sentAtMs > giveUpAtMs) throw new NoAnswerInTime(limitMs);
      wasSent = true;
      const { channel } = this.#calls;
      const notAfterUs = this.#latestUs(slot, giveUpAtMs);
      const witness = this.#replicas?.witness(runner, requests);
      const running = runScript(witness ?? runner, requests, { notAfterUs, channel, keysEach });
      const [serverTimeUs = '', ...told] = await this.#connection.watched(running);
      this.#aheadUs[slot] = Number(serverTimeUs) - sentAtMs * 1_000;
      const granted: Granted = { kind: 'granted', fencingToken: BigInt(serverTimeUs) };
      const confirmed = witness ? await witness.confirm(told) : told;
      return confirmed.map((answer) => (answer === granted.kind ? granted : answer));
    } catch (cause) {
      const told = this.#connection.explained(cause);
      const lost = isConnectionLost(cause) ? connectionLost(told) : unknown(told);
      return requests.map(() => (wasSent ? lost : neverSent(told)));
    }
  }

  /** The server's time at `atMs` of ours; 0 while we have not heard of it. Never too early, at most a round trip late. */
  #latestUs(slot: number, atMs: number): number {
    const aheadUs = this.#aheadUs[slot];
    return aheadUs === undefined ? 0 : aheadUs + atMs * 1_000;
  }
}

/** Keeps locks in Redis, Valkey, a Sentinel group or a Cluster. See {@link RedisBackend}. */
export const redisBackend = (options: RedisBackendOptions): LockBackend => new RedisBackend(options);

/** Those of one process mostly want the same, and share the text that says so. */
function addAcquisitions(requests: ScriptRequest[], acquire: readonly AcquireRequest[]): void {
  let last: AcquireRequest | undefined;
  let terms = '';
  for (const request of acquire) {
    if (!last || !haveSameTerms(last, request)) terms = acquireTerms(request);
    last = request;
    requests.push({ key: request.key, holder: request.holder, terms });
  }
}

const haveSameTerms = (one: AcquireRequest, other: AcquireRequest) =>
  one.leaseMs === other.leaseMs &&
  one.tokenCount === other.tokenCount &&
  one.againWithinMs === other.againWithinMs &&
  one.instance === other.instance &&
  one.tick === other.tick;

const acquireTerms = ({ leaseMs, tokenCount = 1, againWithinMs = 0, tick, instance }: AcquireRequest) =>
  tick
    ? `claim ${leaseMs} ${tokenCount} 0 ${tickTerms(tick)} ${instance}`
    : `acquire ${leaseMs} ${tokenCount} ${againWithinMs} ${instance}`;

const isRenewal = ({ terms }: ScriptRequest) => terms.startsWith(RENEW);
function tickTerms(tick: TickClaim): string {
  const { tickMs, maxEarlyMs, staleAfterMs, maxAttempts = 1, isRegistration, forget } = tick;
  const rememberMs = Math.ceil(forget?.afterMs ?? TICK_MEMORY_MS);
  const limits = [tickMs, maxEarlyMs, Math.min(staleAfterMs, Number.MAX_SAFE_INTEGER), maxAttempts];
  return [...limits, rememberMs, isRegistration ? 1 : 0].join(' ');
}

/** Behind the fencing token stands the attempt, for a tick. */
function grantedAnswer(told: string): AcquireAnswer {
  const [token = '', attempt] = told.slice(GRANTED.length).split(' ');
  const fencingToken = BigInt(token);
  return attempt === undefined
    ? { kind: 'granted', fencingToken }
    : { kind: 'granted', fencingToken, attempt: Number(attempt) };
}

function refusedAnswer(
  reason: TickRefused['reason'],
  aheadMs: number,
  more: string | undefined,
): TickRefused {
  const refused = { kind: 'refused', reason, aheadMs } as const;
  if (!more) return refused;
  return reason === 'unfinished'
    ? { ...refused, unfinishedMs: Number(more) }
    : { ...refused, retryInMs: Number(more) };
}

/**
 * `crowded`: it takes more keys. `late`: by an idea of the server's clock that this very answer has put right, as the
 * clock was set.
 */
const isUndone = (told: Told | undefined) => told === 'late' || told === 'crowded';

/** Not all of its keys lie on one node: ioredis is sent from one to the other, and told to try again. */
const isSplit = (told: Told) =>
  typeof told !== 'string' &&
  told.kind === 'unknown' &&
  /^Too many Cluster redirections.*\b(TRYAGAIN|ASK|MOVED)\b/.test(reasonOf(told.cause));

function renewAnswer(told: Told): RenewAnswer {
  if (typeof told !== 'string') return told as Unknown;
  const [kind, token] = told.split(' ') as ['renewed' | 'lost', string?];
  return token === undefined ? { kind } : { kind: 'renewed', fencingToken: BigInt(token) };
}

const releaseAnswer = (told: Told): ReleaseAnswer =>
  typeof told === 'string' ? { kind: told as 'released' | 'gone' } : (told as Unknown);
