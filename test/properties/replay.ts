import { isDeepStrictEqual } from 'node:util';
import type {
  AcquireRequest,
  Answers,
  LockBackend,
  ReleaseRequest,
  RenewRequest,
} from '../../lib/core/backend.js';
import { type Ask, MAX_EARLY_MS, type Play, STALE_AFTER_MS, type TokenOf } from './plays.js';

/** Two stores that must tell the same. */
export interface Stage {
  readonly backend: LockBackend;
  readonly reference: LockBackend;
  /** Plays begin at this time of both stores, in ms. */
  begin(): number;
  /** Lets time pass in both stores, each time a little differently. */
  pass(scene: number): Promise<void>;
  /** Makes the store forget these keys. */
  forget(storeKeys: readonly string[]): Promise<void>;
  /** What is left of an answer when that is taken away in which stores may differ. */
  comparable(answer: unknown): unknown;
}

export interface Mismatch {
  readonly play: number;
  readonly scene: number;
  readonly ask: Ask;
  readonly expected: unknown;
  readonly got: unknown;
}

const LIMIT_MS = 20_000;

/** One ask of one of the plays that are on. */
interface Cue {
  readonly play: number;
  readonly ask: Ask;
  readonly key: string;
  /** As the reference knows it: another one after each time it was forgotten. */
  readonly referenceKey: string;
}

/** Runs any number of plays side by side, each with keys of its own, against both stores. */
export async function replay(
  stage: Stage,
  plays: readonly Play[],
  name: string,
): Promise<Mismatch | undefined> {
  const forgotten = new Map<string, number>();
  const beginsAtMs = stage.begin();
  const [real, ideal] = [new Side(stage.backend, beginsAtMs), new Side(stage.reference, beginsAtMs)];
  const longest = Math.max(...plays.map((play) => play.length));
  for (let scene = 0; scene < longest; scene += 1) {
    await stage.pass(scene);
    const cues = plays.flatMap((play, index) =>
      (play[scene] ?? []).map((ask): Cue => {
        const key = `${name}:${index}:${ask.key}`;
        return { play: index, ask, key, referenceKey: `${key}#${forgotten.get(key) ?? 0}` };
      }),
    );
    const [got, expected] = await Promise.all([
      real.tell(cues.map(({ ask, key }) => [ask, key])),
      ideal.tell(cues.map(({ ask, referenceKey }) => [ask, referenceKey])),
    ]);
    for (const [index, { play, ask }] of cues.entries()) {
      const [ours, theirs] = [stage.comparable(got[index]), stage.comparable(expected[index])];
      if (!isDeepStrictEqual(ours, theirs)) return { play, scene, ask, expected: theirs, got: ours };
    }
    const toForget = cues.filter(({ ask }) => ask.verb === 'forget').map(({ key }) => key);
    if (toForget.length > 0) await stage.forget(toForget);
    for (const key of toForget) forgotten.set(key, (forgotten.get(key) ?? 0) + 1);
  }
  return undefined;
}

/** Those of the newest grant of a key. */
interface Tokens {
  readonly first: bigint;
  /** The first of the newest block. */
  readonly newest: bigint;
  readonly last: bigint;
}

/** One of the two stores, and the fencing tokens it gave. */
class Side {
  readonly #backend: LockBackend;
  readonly #beginsAtMs: number;
  readonly #tokens = new Map<string, Tokens>();

  constructor(backend: LockBackend, beginsAtMs: number) {
    this.#backend = backend;
    this.#beginsAtMs = beginsAtMs;
  }

  /** The answers, in the order of what was asked. */
  async tell(asked: readonly (readonly [Ask, string])[]): Promise<readonly unknown[]> {
    const acquire: AcquireRequest[] = [];
    const renew: RenewRequest[] = [];
    const release: ReleaseRequest[] = [];
    const answers = asked.map(([ask, key]): (() => unknown) | Promise<unknown> => {
      const place = { acquire: acquire.length, renew: renew.length, release: release.length };
      switch (ask.verb) {
        case 'acquire':
        case 'claim':
          acquire.push(this.#acquisition(ask, key));
          return () => this.#withToken(exchanged.acquire[place.acquire], key, ask);
        case 'renew':
          renew.push({ key, holder: holderOf(ask.who), leaseMs: ask.leaseMs, moreTokens: ask.moreTokens });
          return () => this.#withToken(exchanged.renew[place.renew], key, ask);
        case 'release':
        case 'finish':
          release.push({ key, holder: holderOf(ask.who), ...(ask.verb === 'finish' && { hasEnded: true }) });
          return () => exchanged.release[place.release];
        case 'inspect':
          return this.#backend.inspect(key, LIMIT_MS).then((record) => record && this.#recorded(record, key));
        case 'forceRelease':
          return this.#backend.forceRelease(key, this.#token(key, ask.by), LIMIT_MS);
        case 'forget':
          return () => undefined;
      }
    });
    const isNothing = acquire.length + renew.length + release.length === 0;
    const exchanging = isNothing ? NOTHING : this.#backend.exchange({ acquire, renew, release }, LIMIT_MS);
    const others = await Promise.all(
      answers.map(async (answer) => (answer instanceof Promise ? await answer : undefined)),
    );
    const exchanged = await exchanging;
    return answers.map((answer, index) => (answer instanceof Promise ? others[index] : answer()));
  }

  #acquisition(ask: Extract<Ask, { verb: 'acquire' | 'claim' }>, key: string): AcquireRequest {
    const request = { key, holder: holderOf(ask.who), leaseMs: ask.leaseMs, instance: `of ${ask.who}` };
    if (ask.verb === 'acquire') {
      return { ...request, tokenCount: ask.tokenCount, againWithinMs: ask.againWithinMs };
    }
    const { tickInMs, maxAttempts, isRegistration } = ask;
    const tickMs = this.#beginsAtMs + tickInMs;
    const limits = { maxEarlyMs: MAX_EARLY_MS, staleAfterMs: STALE_AFTER_MS, maxAttempts };
    return { ...request, tick: { tickMs, ...limits, ...(isRegistration && { isRegistration }) } };
  }

  /** Tells of a token whether it is that of the grant at hand, or larger than all that were taken up before. */
  #withToken(answer: unknown, key: string, ask: Ask): unknown {
    const { fencingToken } = answer as { fencingToken?: bigint };
    if (fencingToken === undefined) return answer;
    const known = this.#tokens.get(key);
    const count = ask.verb === 'acquire' ? ask.tokenCount : ask.verb === 'renew' ? (ask.moreTokens ?? 1) : 1;
    const token = { fencingToken, isNew: known === undefined || fencingToken > known.last };
    const isSame = fencingToken === known?.first;
    const last = fencingToken + BigInt(count - 1);
    const [first, newest] = [ask.verb === 'renew' && known ? known.first : fencingToken, fencingToken];
    if (!isSame) this.#tokens.set(key, { first, newest, last });
    return { ...(answer as object), ...token, isSame };
  }

  #token(key: string, by: TokenOf): bigint {
    const tokens = this.#tokens.get(key) ?? { first: 0n, newest: 0n, last: 0n };
    if (by === 'before') return tokens.first - 1n;
    return by === 'after' ? tokens.last + 1n : tokens[by];
  }

  #recorded({ fencingToken, ...record }: { fencingToken: bigint }, key: string): unknown {
    return { ...record, isOfNewestGrant: fencingToken === this.#tokens.get(key)?.first };
  }
}

const NOTHING: Answers = { acquire: [], renew: [], release: [] };

const holderOf = (who: number) => `holder-${who}`;
