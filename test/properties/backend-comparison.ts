import { isDeepStrictEqual } from 'node:util';
import type {
  AcquireRequest,
  BatchResult,
  LockBackend,
  ReleaseRequest,
  RenewRequest,
} from '../../lib/core/backend.js';
import {
  type Operation,
  MAX_EARLY_MS,
  type PropertyRun,
  STALE_AFTER_MS,
  type TokenOf,
} from './property-runs.js';

/** Two stores that must tell the same. */
export interface BackendPair {
  readonly backend: LockBackend;
  readonly reference: LockBackend;
  /** Plays begin at this time of both stores, in ms. */
  begin(): number;
  /** Lets time pass in both stores, each time a little differently. */
  pass(step: number): Promise<void>;
  /** Makes the store forget these keys. */
  forget(storeKeys: readonly string[]): Promise<void>;
  /** What is left of an answer when that is taken away in which stores may differ. */
  comparable(result: unknown): unknown;
}

export interface Mismatch {
  readonly run: number;
  readonly step: number;
  readonly operation: Operation;
  readonly expected: unknown;
  readonly got: unknown;
}

const TIMEOUT_MS = 20_000;

/** One ask of one of the plays that are on. */
interface OperationOfRun {
  readonly run: number;
  readonly operation: Operation;
  readonly key: string;
  /** As the reference knows it: another one after each time it was forgotten. */
  readonly referenceKey: string;
}

/** Runs any number of plays side by side, each with keys of its own, against both stores. */
export async function compareBackends(
  stores: BackendPair,
  runs: readonly PropertyRun[],
  name: string,
): Promise<Mismatch | undefined> {
  const forgotten = new Map<string, number>();
  const beginsAtMs = stores.begin();
  const [real, ideal] = [
    new TrackedBackend(stores.backend, beginsAtMs),
    new TrackedBackend(stores.reference, beginsAtMs),
  ];
  const longest = Math.max(...runs.map((run) => run.length));
  for (let step = 0; step < longest; step += 1) {
    await stores.pass(step);
    const requests = runs.flatMap((run, index) =>
      (run[step] ?? []).map((operation): OperationOfRun => {
        const key = `${name}:${index}:${operation.key}`;
        return { run: index, operation, key, referenceKey: `${key}#${forgotten.get(key) ?? 0}` };
      }),
    );
    const [got, expected] = await Promise.all([
      real.execute(requests.map(({ operation, key }) => [operation, key])),
      ideal.execute(requests.map(({ operation, referenceKey }) => [operation, referenceKey])),
    ]);
    for (const [index, { run, operation }] of requests.entries()) {
      const [ours, theirs] = [stores.comparable(got[index]), stores.comparable(expected[index])];
      if (!isDeepStrictEqual(ours, theirs)) return { run, step, operation, expected: theirs, got: ours };
    }
    const toForget = requests.filter(({ operation }) => operation.verb === 'forget').map(({ key }) => key);
    if (toForget.length > 0) await stores.forget(toForget);
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
class TrackedBackend {
  readonly #backend: LockBackend;
  readonly #beginsAtMs: number;
  readonly #tokens = new Map<string, Tokens>();

  constructor(backend: LockBackend, beginsAtMs: number) {
    this.#backend = backend;
    this.#beginsAtMs = beginsAtMs;
  }

  /** The answers, in the order of what was asked. */
  async execute(requests: readonly (readonly [Operation, string])[]): Promise<readonly unknown[]> {
    const acquire: AcquireRequest[] = [];
    const renew: RenewRequest[] = [];
    const release: ReleaseRequest[] = [];
    const pendingResults = requests.map(([operation, key]): (() => unknown) | Promise<unknown> => {
      const index = { acquire: acquire.length, renew: renew.length, release: release.length };
      switch (operation.verb) {
        case 'acquire':
        case 'claim':
          acquire.push(this.#acquisition(operation, key));
          return () => this.#withToken(batchResult.acquire[index.acquire], key, operation);
        case 'renew':
          renew.push({
            key,
            holder: holderOf(operation.who),
            leaseMs: operation.leaseMs,
            moreTokens: operation.moreTokens,
          });
          return () => this.#withToken(batchResult.renew[index.renew], key, operation);
        case 'release':
        case 'finish':
          release.push({
            key,
            holder: holderOf(operation.who),
            ...(operation.verb === 'finish' && { hasEnded: true }),
          });
          return () => batchResult.release[index.release];
        case 'inspect':
          return this.#backend
            .inspect(key, TIMEOUT_MS)
            .then((record) => record && this.#recorded(record, key));
        case 'readTicks':
        case 'registerTicks':
          return this.#backend[operation.verb](key, TIMEOUT_MS);
        case 'pause':
        case 'resume':
          return this.#backend.setPaused(key, operation.verb === 'pause', TIMEOUT_MS);
        case 'forceRelease':
          return this.#backend.forceRelease(key, this.#token(key, operation.by), TIMEOUT_MS);
        case 'forget':
          return () => undefined;
      }
    });
    const isNothing = acquire.length + renew.length + release.length === 0;
    const pendingBatch = isNothing ? NOTHING : this.#backend.execute({ acquire, renew, release }, TIMEOUT_MS);
    const others = await Promise.all(
      pendingResults.map(async (pendingResult) =>
        pendingResult instanceof Promise ? await pendingResult : undefined,
      ),
    );
    const batchResult = await pendingBatch;
    return pendingResults.map((pendingResult, index) =>
      pendingResult instanceof Promise ? others[index] : pendingResult(),
    );
  }

  #acquisition(operation: Extract<Operation, { verb: 'acquire' | 'claim' }>, key: string): AcquireRequest {
    const request = {
      key,
      holder: holderOf(operation.who),
      leaseMs: operation.leaseMs,
      instance: `of ${operation.who}`,
    };
    if (operation.verb === 'acquire') {
      return { ...request, tokenCount: operation.tokenCount, retryWithinMs: operation.retryWithinMs };
    }
    const { tickInMs, maxAttempts } = operation;
    const tickMs = this.#beginsAtMs + tickInMs;
    const limits = { maxEarlyMs: MAX_EARLY_MS, staleAfterMs: STALE_AFTER_MS, maxAttempts };
    return { ...request, tick: { tickMs, ...limits } };
  }

  /** Tells of a token whether it is that of the grant at hand, or larger than all that were taken up before. */
  #withToken(result: unknown, key: string, operation: Operation): unknown {
    const { fencingToken } = result as { fencingToken?: bigint };
    if (fencingToken === undefined) return result;
    const known = this.#tokens.get(key);
    const count =
      operation.verb === 'acquire'
        ? operation.tokenCount
        : operation.verb === 'renew'
          ? (operation.moreTokens ?? 1)
          : 1;
    const token = { fencingToken, isNew: known === undefined || fencingToken > known.last };
    const isSame = fencingToken === known?.first;
    const last = fencingToken + BigInt(count - 1);
    const [first, newest] = [operation.verb === 'renew' && known ? known.first : fencingToken, fencingToken];
    if (!isSame) this.#tokens.set(key, { first, newest, last });
    return { ...(result as object), ...token, isSame };
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

const NOTHING: BatchResult = { acquire: [], renew: [], release: [] };

const holderOf = (who: number) => `holder-${who}`;
