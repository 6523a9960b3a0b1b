import type { BatchResult, LockBackend, RequestBatch } from '../../lib/core/backend.js';
import type { ReleaseNotice } from '../../lib/core/store-notices.js';
import type { ListRequest, LockPage, LockRecord } from '../../lib/core/lock-record.js';
import type { TickState } from '../../lib/core/tick.js';
import { neverSentResult, unknownResult } from '../../lib/core/unknown-result.js';
import type { Clock } from '../../lib/core/clock.js';
import type { Random } from '../support/random.js';
import type { SimProcess } from './sim-process.js';
import type { SimStore } from './sim-store.js';
import type { Timeline } from './timeline.js';

/** How often what befalls a message on its way, as parts of 1. */
export interface NetworkFaults {
  loseRequest: number;
  loseAnswer: number;
  /** The store sees the request again. */
  repeat: number;
  /** It is on its way for up to seconds. */
  delay: number;
  /** Some of the answers are lost. */
  tear: number;
  loseCall: number;
  /** Messages overtake each other, as they do across a reconnect. */
  isUnordered: boolean;
}

export const NO_NETWORK_FAULTS: Readonly<NetworkFaults> = {
  loseRequest: 0,
  loseAnswer: 0,
  repeat: 0,
  delay: 0,
  tear: 0,
  loseCall: 0,
  isUnordered: false,
};

/** Sees what the store does. */
export interface StoreObserver {
  onResult(requests: RequestBatch, results: BatchResult): void;
  onForcedRelease(key: string): void;
}

interface SimConnectionOptions {
  readonly process: SimProcess;
  readonly store: SimStore;
  readonly timeline: Timeline;
  readonly random: Random;
  readonly networkFaults: NetworkFaults;
  readonly observer: StoreObserver;
  readonly longestDelayMs: number;
  readonly log?: (line: string) => void;
  /** Hears of every holder that asks for a key. */
  readonly onRequest: (holder: string) => void;
}

/** More than the tokens of a block are µs. */
const MIN_LATENCY_MS = 0.1;

const connectionReset = () => new Error('connection reset');
const connectionSilent = () => new Error('the connection was silent for too long');

/** The store as one process sees it, behind a network that does to each message what the seed says. */
export class SimConnection implements LockBackend {
  readonly name = 'simulated';
  readonly clock: Clock;
  readonly preferredBatchSize?: number;
  readonly lanes?: number;
  /** What becomes of all messages now. */
  state: 'up' | 'refused' | 'silent' = 'up';
  readonly #parts: SimConnectionOptions;
  readonly #listeners = new Set<(notice: ReleaseNotice) => void>();
  #lastArrivalMs = 0;
  #lastResultMs = 0;

  constructor(parts: SimConnectionOptions) {
    this.#parts = parts;
    this.clock = parts.process.clock;
    if (parts.random.chance(0.2)) this.preferredBatchSize = 2;
    if (parts.random.chance(0.3)) this.lanes = parts.random.pick([1, 2]);
  }

  execute(requests: RequestBatch, timeoutMs: number): Promise<BatchResult> {
    const { store, observer, random, onRequest, log } = this.#parts;
    for (const { holder } of requests.acquire ?? []) onRequest(holder);
    if (this.state === 'refused' && random.chance(0.5)) return Promise.resolve(refusedResult(requests));
    return this.#roundTrip(timeoutMs, async () => {
      const results = await store.backend.execute(requests, timeoutMs);
      observer.onResult(requests, results);
      log?.(`${JSON.stringify(requests)} -> ${formatResult(results)}`);
      return this.#happens('tear') ? this.#loseSomeResults(results) : this.#markNotified(results);
    });
  }

  inspect(key: string, timeoutMs: number): Promise<LockRecord | null> {
    return this.#roundTrip(timeoutMs, () => this.#parts.store.backend.inspect(key, timeoutMs));
  }

  list(request: ListRequest, timeoutMs: number): Promise<LockPage> {
    return this.#roundTrip(timeoutMs, () => this.#parts.store.backend.list(request, timeoutMs));
  }

  forceRelease(key: string, fencingToken: bigint, timeoutMs: number): Promise<boolean> {
    const { store, observer } = this.#parts;
    return this.#roundTrip(timeoutMs, async () => {
      const isDone = await store.backend.forceRelease(key, fencingToken, timeoutMs);
      if (isDone) observer.onForcedRelease(key);
      return isDone;
    });
  }

  readTicks(key: string, timeoutMs: number): Promise<TickState> {
    return this.#roundTrip(timeoutMs, () => this.#parts.store.backend.readTicks(key, timeoutMs));
  }

  setPaused(key: string, isPaused: boolean, timeoutMs: number): Promise<void> {
    return this.#roundTrip(timeoutMs, () => this.#parts.store.backend.setPaused(key, isPaused, timeoutMs));
  }

  registerTicks(key: string, timeoutMs: number): Promise<TickState> {
    return this.#roundTrip(timeoutMs, () => this.#parts.store.backend.registerTicks(key, timeoutMs));
  }

  appendHistory(): Promise<void> {
    return Promise.resolve();
  }

  readHistory(): Promise<readonly string[]> {
    return Promise.resolve([]);
  }

  onReleased(listener: (notice: ReleaseNotice) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  get listeners(): number {
    return this.#listeners.size;
  }

  /** Calls the process. */
  notify(notice: ReleaseNotice): void {
    if (this.state !== 'up' || this.#happens('loseCall')) return;
    this.#parts.timeline.in(this.#latencyMs(), () => {
      this.#parts.process.run('message', () => {
        for (const listener of this.#listeners) listener(notice);
      });
    });
  }

  /** The request goes to the store, and the reply comes back. Rejects if none comes before the timeout. */
  #roundTrip<Answer>(timeoutMs: number, request: () => Promise<Answer>): Promise<Answer> {
    const { timeline, store, random, process } = this.#parts;
    const sentAtMs = timeline.nowMs;
    return new Promise((resolve, reject) => {
      timeline.in(timeoutMs, () => process.run('timer', () => reject(connectionSilent())));
      const fail = () => {
        if (random.chance(0.5)) this.#resultIn(this.#latencyMs(), () => reject(connectionReset()));
      };
      if (this.state !== 'up') {
        if (this.state === 'refused') this.#resultIn(this.#latencyMs(), () => reject(connectionReset()));
        return;
      }
      if (this.#happens('loseRequest')) {
        fail();
        return;
      }
      const atMs = this.#inOrder('arrival', timeline.nowMs + this.#latencyMs() + store.slowMs);
      timeline.at(atMs, () => {
        // A connection that is silent for so long is given up, and what is on its way with it.
        if (timeline.nowMs - sentAtMs > timeoutMs) return;
        if (store.isDown) this.#resultIn(this.#latencyMs(), () => reject(connectionReset()));
        else {
          void request().then((result) => {
            if (this.state !== 'up' || this.#happens('loseAnswer')) fail();
            else this.#resultIn(this.#latencyMs(), () => resolve(result));
          });
        }
      });
      if (!this.#happens('repeat')) return;
      timeline.at(atMs + random.between(0, timeoutMs), () => {
        if (timeline.nowMs - sentAtMs <= timeoutMs && !store.isDown) void request();
      });
    });
  }

  #resultIn(latencyMs: number, settle: () => void): void {
    const { timeline, process } = this.#parts;
    timeline.at(this.#inOrder('answer', timeline.nowMs + latencyMs), () => process.run('message', settle));
  }

  #inOrder(way: 'arrival' | 'answer', atMs: number): number {
    if (this.#parts.networkFaults.isUnordered) return atMs;
    if (way === 'arrival') return (this.#lastArrivalMs = Math.max(this.#lastArrivalMs, atMs));
    return (this.#lastResultMs = Math.max(this.#lastResultMs, atMs));
  }

  #latencyMs(): number {
    const { random } = this.#parts;
    if (!this.#happens('delay')) return random.between(MIN_LATENCY_MS, 2);
    return random.between(2, random.pick([100, this.#parts.longestDelayMs]));
  }

  #happens(faultName: Exclude<keyof NetworkFaults, 'isUnordered'>): boolean {
    const chance = this.#parts.networkFaults[faultName];
    return chance > 0 && this.#parts.random.chance(chance);
  }

  #loseSomeResults(results: BatchResult): BatchResult {
    const torn = <Answer>(list: readonly Answer[]) =>
      list.map((result) => (this.#parts.random.chance(0.5) ? unknownResult(connectionReset()) : result));
    return {
      acquire: torn(results.acquire),
      renew: torn(results.renew),
      release: torn(results.release),
    };
  }

  /** A store with a line calls those who stand in it. */
  #markNotified(results: BatchResult): BatchResult {
    if (this.#parts.networkFaults.loseCall > 0.5) return results;
    const acquire = results.acquire.map((result) =>
      result.kind === 'taken' && result.isQueued ? ({ ...result, willBeNotified: true } as const) : result,
    );
    return { ...results, acquire };
  }
}

function refusedResult({ acquire = [], renew = [], release = [] }: RequestBatch): BatchResult {
  const never = neverSentResult(new Error('connection refused'));
  return {
    acquire: acquire.map(() => never),
    renew: renew.map(() => never),
    release: release.map(() => never),
  };
}

const formatResult = (results: BatchResult) =>
  JSON.stringify(results, (_, value: unknown) => (typeof value === 'bigint' ? String(value) : value));
