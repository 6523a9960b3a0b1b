import type { AcquireResult, ReleaseResult, RenewResult } from './backend-results.js';
import type { Clock } from './clock.js';
import type { ListRequest, LockPage, LockRecord } from './lock-record.js';
import type { ReleaseNotice, ServerStatus } from './store-notices.js';
import type { TickClaim, TickState } from './tick.js';

/**
 * A store of locks: the contract of every backend. A backend decides single requests. Waiting, renewal, deadlines,
 * retries and abort signals are the job of the core.
 *
 * Every backend keeps these promises, and `backendLaws` of `nestjs-distributed-lock/testing` checks them. (A law is a
 * test that every backend must pass.)
 *
 * - At any moment of the store's clock a key has at most one holder. Only the store's clock decides when a lease
 *   expires.
 * - A later grant of a key has a larger fencing token than all tokens of the grants before it, also after the store has
 *   restarted or has lost the key. Without an ordered log, a token is `max(newest token of the key + 1, store time in
 *   µs)`. With one, it is `position in the log * 1024 + n`, and no token has to be remembered.
 * - Planned times are compared with the store's clock. A store without a readable clock uses the clock of the process
 *   that claims the tick. The claim itself is still one step of the store, so a tick is granted once. Only whether it is
 *   `early` or `stale` then depends on the clock of that process.
 * - A repeated acquisition of the same holder returns the same grant: the same fencing token with a fresh lease, which
 *   is never shorter than the current one.
 * - A renewal or release changes nothing unless it comes from the current holder. A renewal never creates and never
 *   shortens a lease.
 * - A release for a holder that was never granted returns `gone`, so it is safe to release whenever the outcome of an
 *   acquisition is in doubt.
 */
export interface LockBackend {
  /** The name of the backend in messages: `redis`, `postgres`, `memory`. */
  readonly name: string;
  /** The clock of a backend that runs in simulated time. The core then uses the same clock. */
  readonly clock?: Clock;
  /**
   * The number of requests, without renewals, at which a batch is sent before the turn of the event loop ends. Without a
   * value, all requests of one turn go in one batch.
   */
  readonly preferredBatchSize?: number;
  /** The largest number of requests of one call of {@link execute}. Without a value there is no limit. */
  readonly maxBatchSize?: number;
  /**
   * How many calls of {@link execute} the store can work on at once, such as its number of connections. While so many
   * are unfinished, the core collects requests for the next call. It also holds back a request for a key until the
   * previous one for this key has its result. Without a value, each batch is sent at once, and the store should execute
   * the requests for one key in the order in which they were sent.
   */
  readonly lanes?: number;
  /**
   * The shortest lease that the store can end in time if its holder dies. The core rejects a shorter one with a
   * `LockConfigError`. Renewals may still ask for less, to confirm a lease without an extension.
   */
  readonly minLeaseMs?: number;
  /** The longest lease that the store can keep. The core rejects a longer one with a `LockConfigError`. */
  readonly maxLeaseMs?: number;
  /**
   * The largest number of fencing tokens that the store can reserve in one step, at least 64. No request asks for more.
   *
   * @default unlimited
   */
  readonly maxTokenCount?: number;
  /**
   * Whether a request would leave this process at once. If not, `withLock` returns with the result of its release. A backend
   * with {@link lanes} does not need it: it says when a release has left.
   *
   * @default true
   */
  readonly isReady?: boolean;
  /** The TypeORM data source of the backend. `withLockedTransaction` finds the locks by it. */
  readonly dataSource?: object | undefined;
  /**
   * Executes any number of requests, in as few round trips as the store allows. No key appears twice in one call.
   *
   * A request with an unknown outcome gets an `UnknownResult`; a rejection means that every outcome of the batch
   * is unknown. After `timeoutMs` the results are of no use: the store should reject a request that arrives later, and
   * the backend should replace a connection that was silent for this long. Only the core limits how long a caller
   * waits. A call occupies its lane until it has settled, so it should settle soon after `timeoutMs`.
   *
   * A backend that has some results much earlier than others can deliver them through `onResult`, each at most once.
   * The result that the promise resolves to contains them, too.
   *
   * A backend with {@link lanes} can call `onReleaseSent` with the index of a release that has left this process and takes
   * effect even if the process exits. `withLock` returns then, and otherwise with the result of its release.
   */
  execute(
    requests: RequestBatch,
    timeoutMs: number,
    onResult?: OnResult,
    onReleaseSent?: (index: number) => void,
  ): Promise<BatchResult>;
  /** Returns the current holder of the key, or `null` if the key is free. `timeoutMs` as in {@link execute}. */
  inspect(key: string, timeoutMs: number): Promise<LockRecord | null>;
  /**
   * Returns one page of the held keys that start with a text. The store must not be blocked meanwhile, so a page may be
   * shorter than the limit, or empty, and still have a cursor. When the time is over, it returns what it has found with
   * a cursor, or rejects. A key that is held all the time until the last page is on
   * at least one page.
   *
   * @throws LockConfigError if the cursor is not one of this store
   */
  list(request: ListRequest, timeoutMs: number): Promise<LockPage>;
  /**
   * Releases the key if the token belongs to its current grant. Returns whether it did.
   *
   * A renewal may add a second block of tokens to a grant. Tokens between the two blocks were given to no caller, so a
   * store may accept or reject them.
   */
  forceRelease(key: string, fencingToken: bigint, timeoutMs: number): Promise<boolean>;
  /** Returns what the store keeps about the ticks of the key, with the store's time. Changes nothing. */
  readTicks(key: string, timeoutMs: number): Promise<TickState>;
  /**
   * As {@link readTicks}. If no tick of the key was claimed yet, the store also sets the watermark to its current time,
   * so that all ticks before now count as claimed. Returns the state before that.
   */
  registerTicks(key: string, timeoutMs: number): Promise<TickState>;
  /**
   * Pauses the ticks of the key, or resumes them. While they are paused, each claim of a tick is refused as `paused`, in
   * the step that would grant it; a run in progress continues, and acquisitions without a tick are granted as usual. The
   * pause stays until it is ended: it has no time limit, and no clean-up removes it. A pause registers the key as {@link
   * registerTicks} does. After a resumption, ticks up to now count as claimed, unless a run is in progress.
   *
   * If it rejects, it has taken effect by then, or never will: otherwise it could undo a later call.
   */
  setPaused(key: string, isPaused: boolean, timeoutMs: number): Promise<void>;
  /**
   * Adds an entry to the history of the key. No lock and no claim depends on the history, so an entry may be missing. An entry
   * has at most {@link MAX_HISTORY_ENTRY_LENGTH} characters and no line break. The store keeps the newest {@link
   * MAX_HISTORY_ENTRIES} entries, separately from the lock of the key.
   */
  appendHistory(key: string, entry: string, timeoutMs: number): Promise<void>;
  /** Returns the history of the key, newest entry first. */
  readHistory(key: string, timeoutMs: number): Promise<readonly string[]>;
  /**
   * Checks whether the store can be used, also for writes: when the application boots, and for health checks. `key` has no
   * lock: a store that grants rights by key can try to write it.
   *
   * @throws LockConfigError if no retry can help (a missing table, an unsupported database). Any other rejection means
   * that the store does not answer.
   */
  check?(timeoutMs: number, key?: string): Promise<void>;
  /** Returns one sentence for the log if the store should be configured differently. Called once, after {@link check}. */
  advice?(timeoutMs: number): Promise<string | undefined>;
  /**
   * Subscribes to notices of released keys, and returns a function that unsubscribes. A notice is a hint to retry:
   * waiters also retry without it, so a backend may lose notices or have none.
   */
  onReleased?(listener: (notice: ReleaseNotice) => void): () => void;
  /** For a majority of servers: subscribes to those that fail and recover. Returns a function that unsubscribes. */
  onServerStatus?(listener: (status: ServerStatus) => void): () => void;
  /** Closes what the backend itself opened. A request after that opens it again. */
  close(): Promise<void>;
}

/** Two entries for each run of a job: its start and its end. */
export const MAX_HISTORY_ENTRIES = 100;
export const MAX_HISTORY_ENTRY_LENGTH = 400;

/** The requests of one call of {@link LockBackend.execute}. */
export interface RequestBatch {
  readonly acquire?: readonly AcquireRequest[];
  readonly renew?: readonly RenewRequest[];
  readonly release?: readonly ReleaseRequest[];
}

/** One result for each request of a {@link RequestBatch}, in the same order. */
export interface BatchResult {
  readonly acquire: readonly AcquireResult[];
  readonly renew: readonly RenewResult[];
  readonly release: readonly ReleaseResult[];
}

/** Receives one result of a batch before the others are known. `index` is the place of its request in its list. */
export type OnResult = <Kind extends keyof BatchResult>(
  kind: Kind,
  index: number,
  result: BatchResult[Kind][number],
) => void;

/** Identifies one acquisition of one key. Every request for the lock of a key contains it. */
export interface AcquisitionId {
  /** The key as the store knows it, with its namespace as prefix. */
  readonly key: string;
  /** The random id of the process and a number. No other acquisition ever has the same. */
  readonly holder: string;
}

export interface AcquireRequest extends AcquisitionId {
  readonly leaseMs: number;
  /** The name of the process that asks. `inspect()` returns it. */
  readonly instance: string;
  /**
   * The number of fencing tokens that the grant reserves, starting with its own. The next grant gets a larger token
   * than all of them. This many callers of one process can hold the key in turn without a request to the store.
   *
   * @default 1
   */
  readonly tokenCount?: number;
  /**
   * The caller waits if the key is taken, and sends the request again within this many ms. A store with a wait queue
   * keeps the place for this long; a store with notices (see {@link LockBackend.onReleased}) sends them for this long.
   * Without a value the caller does not wait.
   */
  readonly retryWithinMs?: number | undefined;
  /** Grants only if this tick may be claimed, and moves the watermark of the key to the tick in the same step. */
  readonly tick?: TickClaim;
}

/** An acquisition that claims a tick. */
export type TickRequest = AcquireRequest & { readonly tick: TickClaim };

export const isTickRequest = (request: AcquireRequest): request is TickRequest => request.tick !== undefined;

export interface RenewRequest extends AcquisitionId {
  readonly leaseMs: number;
  /**
   * How many more fencing tokens the grant should reserve. A store adds them only if no other process waits for the
   * key, and may always decline.
   */
  readonly moreTokens?: number | undefined;
}

export interface ReleaseRequest extends AcquisitionId {
  /**
   * The run of the claimed tick has ended, so no other run takes the tick over. The store records this in the step that
   * releases the key. It also does so after the lease has expired, if the key was not granted again since.
   */
  readonly hasEnded?: true;
  /** Only the first fencing token of the grant was used, so the store may use the others again. */
  readonly usedOneToken?: true;
}
