import type {
  AcquireRequest,
  BatchResult,
  AcquisitionId,
  LockBackend,
  ReleaseRequest,
  RenewRequest,
  RequestBatch,
} from '../../lib/core/backend.js';
import type { AcquireResult, ReleaseResult, RenewResult } from '../../lib/core/backend-results.js';
import type { ListRequest, LockPage, LockRecord } from '../../lib/core/lock-record.js';
import { type TickClaim, type TickState, judgeTick, resumedTick } from '../../lib/core/tick.js';

/** How long a key is kept for the next in line to come for it. */
const CLAIM_WINDOW_US = 250_000;
const DEPUTY_DELAY_MS = 255;

/** A lock as the script of the Redis backend keeps it; all times in µs. */
interface LockState {
  /** Somebody may stand in line. */
  hasQueue: boolean;
  lastToken: number;
  untilUs: number;
  /** 0: it is kept for the holder, whose turn it is, or it is free. */
  token: number;
  tick: { readonly tickMs: number; attempt: number; readonly isPaused?: boolean } | undefined;
  holder: string;
  sinceUs: number;
  instance: string;
}

interface QueueEntry {
  readonly holder: string;
  untilUs: number;
}

/** Tells a holder that the key may be free, or be so in a while. */
type Notify = (holder: string, notice: { readonly key: string; readonly inMs: number }) => void;

/**
 * What the script of the Redis backend does, said in TypeScript as plainly as can be: a store that keeps a line. The
 * reference for that script, and the store of the simulation where those who wait stand in line.
 */
export class QueueingBackend implements LockBackend {
  readonly name = 'line';
  readonly #nowUs: () => number;
  readonly #notify: Notify;
  readonly #locks = new Map<string, LockState>();
  readonly #queues = new Map<string, QueueEntry[]>();

  constructor(nowUs: () => number, notify: Notify = () => undefined) {
    this.#nowUs = nowUs;
    this.#notify = notify;
  }

  execute({ release = [], renew = [], acquire = [] }: RequestBatch): Promise<BatchResult> {
    return Promise.resolve({
      release: release.map((request) => this.#release(request)),
      renew: renew.map((request) => this.#renew(request)),
      acquire: acquire.map((request) => this.#acquire(request)),
    });
  }

  inspect(key: string): Promise<LockRecord | null> {
    const lock = this.#locks.get(key);
    if (!lock || !this.#isHeld(lock) || lock.token === 0) return Promise.resolve(null);
    return Promise.resolve({
      holder: lock.holder,
      instance: lock.instance,
      fencingToken: BigInt(lock.token),
      sinceMs: Math.floor(lock.sinceUs / 1_000),
      remainingMs: this.#remainingMs(lock),
      queued: lock.hasQueue ? (this.#queues.get(key)?.length ?? 0) : 0,
    });
  }

  async list({ prefix, cursor = '', limit }: ListRequest): Promise<LockPage> {
    const keys = [...this.#locks.keys()].filter((key) => key.startsWith(prefix) && key > cursor).sort();
    const found = await Promise.all(keys.map(async (key) => ({ key, record: await this.inspect(key) })));
    const locks = found.flatMap(({ key, record }) => (record ? [{ key, ...record }] : []));
    const last = locks.length > limit ? locks[limit - 1] : undefined;
    return { locks: locks.slice(0, limit), ...(last && { cursor: last.key }) };
  }

  forceRelease(key: string, fencingToken: bigint): Promise<boolean> {
    const lock = this.#locks.get(key);
    if (!lock || !this.#isHeld(lock) || lock.token === 0) return Promise.resolve(false);
    const isIt = fencingToken >= BigInt(lock.token) && fencingToken <= BigInt(lock.lastToken);
    if (isIt) this.#handOver(key, lock);
    return Promise.resolve(isIt);
  }

  readTicks(key: string): Promise<TickState> {
    return Promise.resolve(this.#tickState(this.#locks.get(key)));
  }

  registerTicks(key: string): Promise<TickState> {
    const lock = this.#locks.get(key);
    const state = this.#tickState(lock);
    if (!state.claimed) this.#locks.set(key, { ...(lock ?? NO_LOCK), tick: resumedTick(state) });
    return Promise.resolve(state);
  }

  setPaused(key: string, isPaused: boolean): Promise<void> {
    const lock = this.#locks.get(key);
    const state = this.#tickState(lock);
    if ((state.isPaused ?? false) === isPaused) return Promise.resolve();
    const newest = isPaused && state.claimed ? state.claimed : resumedTick(state);
    this.#locks.set(key, { ...(lock ?? NO_LOCK), tick: { ...newest, isPaused } });
    return Promise.resolve();
  }

  /** How many stand in line for the key. */
  waitingFor(key: string): number {
    return this.#queues.get(key)?.filter(({ untilUs }) => untilUs >= this.#nowUs()).length ?? 0;
  }

  appendHistory(): Promise<void> {
    return Promise.resolve();
  }

  readHistory(): Promise<readonly string[]> {
    return Promise.resolve([]);
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  #acquire(request: AcquireRequest): AcquireResult {
    const { key, holder, leaseMs, retryWithinMs = 0, tick } = request;
    const lock = this.#locks.get(key);
    const attempt = tick && lock?.tick?.attempt;
    if (lock && this.#isGrantedTo(lock, holder)) {
      lock.untilUs = Math.max(lock.untilUs, this.#nowUs() + leaseMs * 1_000);
      return granted(lock.token, attempt);
    }
    if (tick) return this.#claim(request, tick, lock);
    if (this.#isOf(lock, holder)) return this.#grant(request, lock);
    if (lock && this.#isHeld(lock)) {
      if (retryWithinMs > 0) {
        this.#enqueue(request);
        lock.hasQueue = true;
      }
      return { kind: 'taken', remainingMs: this.#remainingMs(lock), ...(retryWithinMs > 0 && QUEUED) };
    }
    const head = lock?.hasQueue ? this.#firstInQueue(key) : undefined;
    if (lock && head && head.holder !== holder) {
      if (retryWithinMs > 0) this.#enqueue(request);
      this.#handOver(key, lock);
      return { kind: 'taken', remainingMs: CLAIM_WINDOW_US / 1_000, ...(retryWithinMs > 0 && QUEUED) };
    }
    if (head) this.#dequeue(key, holder);
    return this.#grant(request, lock);
  }

  #grant(request: AcquireRequest, lock: LockState | undefined, tick = lock?.tick): AcquireResult {
    const { key, holder, instance, leaseMs, tokenCount = 1 } = request;
    const nowUs = this.#nowUs();
    const token = Math.max(nowUs, (lock?.lastToken ?? 0) + 1);
    this.#locks.set(key, {
      hasQueue: lock?.hasQueue ?? false,
      lastToken: token + tokenCount - 1,
      untilUs: nowUs + leaseMs * 1_000,
      token,
      tick,
      holder,
      sinceUs: nowUs,
      instance,
    });
    return granted(token, request.tick && tick?.attempt);
  }

  #claim(request: AcquireRequest, tick: TickClaim, lock: LockState | undefined): AcquireResult {
    const verdict = judgeTick(tick, this.#tickState(lock));
    if (verdict.kind !== 'grant') return verdict;
    return this.#grant(request, lock, { tickMs: tick.tickMs, attempt: verdict.attempt });
  }

  #tickState(lock: LockState | undefined): TickState {
    return {
      claimed: lock?.tick && { tickMs: lock.tick.tickMs, attempt: lock.tick.attempt },
      ...(lock?.tick?.isPaused && { isPaused: true }),
      heldForMs: lock && this.#isHeld(lock) ? this.#remainingMs(lock) : 0,
      aliveUntilMs: (lock?.untilUs ?? 0) / 1_000,
      nowMs: this.#nowUs() / 1_000,
    };
  }

  #renew({ key, holder, leaseMs, moreTokens }: RenewRequest): RenewResult {
    const lock = this.#locks.get(key);
    if (!lock || !this.#isGrantedTo(lock, holder)) return { kind: 'lost' };
    lock.untilUs = Math.max(lock.untilUs, this.#nowUs() + leaseMs * 1_000);
    if (!moreTokens || lock.hasQueue) return { kind: 'renewed' };
    const first = Math.max(lock.lastToken + 1, this.#nowUs());
    lock.lastToken = first + moreTokens - 1;
    return { kind: 'renewed', fencingToken: BigInt(first) };
  }

  #release({ key, holder, hasEnded }: ReleaseRequest): ReleaseResult {
    const lock = this.#locks.get(key);
    if (hasEnded) return this.#finish({ key, holder }, lock);
    if (lock && this.#isOf(lock, holder)) {
      const wasGranted = lock.token !== 0;
      this.#handOver(key, lock);
      return { kind: wasGranted ? 'released' : 'gone' };
    }
    if (lock?.hasQueue) this.#dequeue(key, holder);
    return { kind: 'gone' };
  }

  /** Also after the lease, as long as nobody has come since. */
  #finish({ key, holder }: AcquisitionId, lock: LockState | undefined): ReleaseResult {
    if (!lock || lock.token === 0 || lock.holder !== holder) return { kind: 'gone' };
    if (lock.tick) lock.tick.attempt = 0;
    if (this.#isHeld(lock)) this.#handOver(key, lock);
    else lock.token = 0;
    return { kind: 'released' };
  }

  /** The lock is free now: it is kept for the first in line, who is called, and the next one in case he does not come. */
  #handOver(key: string, lock: LockState): void {
    const head = lock.hasQueue ? this.#firstInQueue(key) : undefined;
    lock.token = 0;
    if (!head) {
      lock.untilUs = 0;
      lock.hasQueue = false;
      return;
    }
    this.#dequeue(key, head.holder);
    const deputy = this.#firstInQueue(key);
    lock.hasQueue = deputy !== undefined;
    lock.untilUs = this.#nowUs() + CLAIM_WINDOW_US;
    lock.holder = head.holder;
    this.#notify(head.holder, { key, inMs: 0 });
    if (deputy) this.#notify(deputy.holder, { key, inMs: DEPUTY_DELAY_MS });
  }

  #enqueue({ key, holder, retryWithinMs = 0 }: AcquireRequest): void {
    const queue = this.#queues.get(key) ?? [];
    this.#queues.set(key, queue);
    const untilUs = this.#nowUs() + retryWithinMs * 1_000;
    const entry = queue.find((one) => one.holder === holder);
    if (entry) entry.untilUs = untilUs;
    else queue.push({ holder, untilUs });
  }

  /** Those who have not asked again in time are sent away. */
  #firstInQueue(key: string): QueueEntry | undefined {
    const queue = this.#queues.get(key) ?? [];
    while (queue[0] && queue[0].untilUs < this.#nowUs()) queue.shift();
    return queue[0];
  }

  #dequeue(key: string, holder: string): void {
    const queue = this.#queues.get(key) ?? [];
    this.#queues.set(
      key,
      queue.filter((one) => one.holder !== holder),
    );
  }

  #isHeld(lock: LockState | undefined): boolean {
    if (!lock || lock.untilUs <= this.#nowUs()) return false;
    return lock.token !== 0 || lock.untilUs <= this.#nowUs() + CLAIM_WINDOW_US;
  }

  #isOf(lock: LockState | undefined, holder: string): boolean {
    return this.#isHeld(lock) && lock?.holder === holder;
  }

  #isGrantedTo(lock: LockState | undefined, holder: string): boolean {
    return this.#isOf(lock, holder) && lock?.token !== 0;
  }

  /** As the script tells it: rounded up. */
  #remainingMs({ untilUs }: LockState): number {
    return Math.ceil((untilUs - this.#nowUs()) / 1_000);
  }
}

const NO_LOCK = {
  ...{ hasQueue: false, lastToken: 0, untilUs: 0, token: 0, holder: '', sinceUs: 0, instance: '' },
} as const;

const QUEUED = { isQueued: true } as const;

const granted = (token: number, attempt: number | undefined): AcquireResult => ({
  ...{ kind: 'granted', fencingToken: BigInt(token) },
  ...(attempt !== undefined && { attempt }),
});
