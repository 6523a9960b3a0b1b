import {
  type AcquireRequest,
  type BatchResult,
  type LockBackend,
  type OnResult,
  type RequestBatch,
  isTickRequest,
} from '../../core/backend.js';
import type { AcquireResult } from '../../core/backend-results.js';
import type { ListRequest, LockPage, LockRecord } from '../../core/lock-record.js';
import type { ReleaseNotice } from '../../core/store-notices.js';
import type { TickState } from '../../core/tick.js';
import { clusterAdvice } from './cluster-advice.js';
import { type EtcdBackendOptions, resolveEtcdOptions } from './etcd-options.js';
import { History } from './history.js';
import { Keyspace } from './keyspace.js';
import { createAbandonedPlaces } from './locks/abandoned-places.js';
import { Acquisitions, type IndexedAcquisition } from './locks/acquisitions.js';
import { EntryNames } from './locks/entry-names.js';
import { Inspections } from './locks/inspections.js';
import { LockExtension } from './locks/lock-extension.js';
import { LockReader } from './locks/lock-reader.js';
import { OwnEntries } from './locks/own-entries.js';
import { PredecessorWatches } from './locks/predecessor-watches.js';
import { Releases } from './locks/releases.js';
import { Renewals } from './locks/renewals.js';
import { TOKENS_PER_REVISION } from './locks/stored-lock.js';
import { EtcdConnection } from './rpc/etcd-connection.js';
import { Sessions } from './session/sessions.js';
import { RunRecords } from './ticks/run-records.js';
import { TickClaims } from './ticks/tick-claims.js';

/** etcd ends no lease before 1.5 election timeouts, which are 2 s if that is not configured. */
const MIN_LEASE_MS = 2_000;
/** A lease that is long enough for the check of the store. */
const CHECK_LEASE_MS = 30_000;

/**
 * Keeps locks in an etcd cluster (3.4 or newer). A majority of its members decides each request, so locks are exclusive whichever
 * member fails. Fencing tokens follow the revision of etcd, which only grows.
 */
export class EtcdBackend implements LockBackend {
  readonly name = 'etcd';
  /** So that requests for one key keep their order, and a busy process sends larger transactions. */
  readonly lanes = 8;
  readonly maxBatchSize = 1_000;
  readonly minLeaseMs = MIN_LEASE_MS;
  readonly maxTokenCount = TOKENS_PER_REVISION;
  readonly #connection: EtcdConnection;
  readonly #sessions: Sessions;
  readonly #ownEntries: OwnEntries;
  readonly #watches: PredecessorWatches;
  readonly #acquisitions: Acquisitions;
  readonly #renewals: Renewals;
  readonly #releases: Releases;
  readonly #ticks: TickClaims;
  readonly #reader: LockReader;
  readonly #inspections: Inspections;
  readonly #history: History;

  /**
   * Opens no connection.
   *
   * @throws LockConfigError if an option is wrong
   */
  constructor(options: EtcdBackendOptions) {
    const resolved = resolveEtcdOptions(options);
    const keyspace = new Keyspace(resolved.keyPrefix);
    const connection = new EtcdConnection(resolved);
    const watches = new PredecessorWatches(connection, keyspace);
    const names = new EntryNames(keyspace);
    const ownEntries = new OwnEntries(connection, names, (name) => watches.stop(name));
    const isInUse = ownEntries.isInUse.bind(ownEntries);
    const sessions = new Sessions({ connection, keyspace, isInUse });
    const extension = new LockExtension({ keyspace, sessions, ownEntries });
    const runRecords = new RunRecords(connection, keyspace);
    const shared = { connection, keyspace, names, sessions, ownEntries, extension, runRecords };
    this.#connection = connection;
    this.#sessions = sessions;
    this.#ownEntries = ownEntries;
    this.#watches = watches;
    const abandonedPlaces = createAbandonedPlaces(connection);
    this.#acquisitions = new Acquisitions({ ...shared, watches, abandonedPlaces });
    this.#renewals = new Renewals(shared);
    this.#releases = new Releases(shared);
    this.#ticks = new TickClaims(shared);
    this.#reader = new LockReader(connection, keyspace, ownEntries);
    this.#inspections = new Inspections(this.#reader);
    this.#history = new History(connection, keyspace);
  }

  async execute(
    { acquire = [], renew = [], release = [] }: RequestBatch,
    timeoutMs: number,
    onResult: OnResult = () => undefined,
  ): Promise<BatchResult> {
    this.#connection.reopen();
    const results: { [Kind in keyof BatchResult]: BatchResult[Kind][number][] } = {
      ...{ acquire: [], renew: [], release: [] },
    };
    const reportTo =
      <Kind extends keyof BatchResult>(kind: Kind) =>
      (index: number, result: BatchResult[Kind][number]) => {
        (results[kind] as BatchResult[Kind][number][])[index] = result;
        onResult(kind, index, result);
      };
    await Promise.all([
      this.#releases.release(release, timeoutMs, reportTo('release')),
      this.#renewals.renew(renew, timeoutMs, reportTo('renew')),
      this.#acquire(acquire, timeoutMs, reportTo('acquire')),
    ]);
    return results;
  }

  inspect(key: string, timeoutMs: number): Promise<LockRecord | null> {
    this.#connection.reopen();
    return this.#inspections.inspect(key, timeoutMs);
  }

  list(request: ListRequest, timeoutMs: number): Promise<LockPage> {
    this.#connection.reopen();
    return this.#reader.list(request, timeoutMs);
  }

  forceRelease(key: string, fencingToken: bigint, timeoutMs: number): Promise<boolean> {
    this.#connection.reopen();
    return this.#releases.force(key, fencingToken, timeoutMs);
  }

  readTicks(key: string, timeoutMs: number): Promise<TickState> {
    this.#connection.reopen();
    return this.#ticks.read(key, timeoutMs);
  }

  registerTicks(key: string, timeoutMs: number): Promise<TickState> {
    this.#connection.reopen();
    return this.#ticks.register(key, timeoutMs);
  }

  setPaused(key: string, isPaused: boolean, timeoutMs: number): Promise<void> {
    this.#connection.reopen();
    return this.#ticks.setPaused(key, isPaused, timeoutMs);
  }

  appendHistory(key: string, entry: string, timeoutMs: number): Promise<void> {
    this.#connection.reopen();
    return this.#history.append(key, entry, timeoutMs);
  }

  readHistory(key: string, timeoutMs: number): Promise<readonly string[]> {
    this.#connection.reopen();
    return this.#history.read(key, timeoutMs);
  }

  /** Opens a session, which needs a leader, the permission to write, and space. */
  async check(timeoutMs: number): Promise<void> {
    this.#connection.reopen();
    await this.#sessions.get(CHECK_LEASE_MS).prepare(CHECK_LEASE_MS, timeoutMs);
  }

  advice(timeoutMs: number): Promise<string | undefined> {
    this.#connection.reopen();
    return clusterAdvice(this.#connection, timeoutMs);
  }

  onReleased(listener: (notice: ReleaseNotice) => void): () => void {
    return this.#watches.listen(listener);
  }

  /** Locks that are still held end with their leases. */
  close(): Promise<void> {
    this.#connection.close();
    this.#sessions.close();
    this.#ownEntries.close();
    this.#watches.close();
    return Promise.resolve();
  }

  async #acquire(
    requests: readonly AcquireRequest[],
    timeoutMs: number,
    report: (index: number, result: AcquireResult) => void,
  ): Promise<void> {
    const plain: IndexedAcquisition[] = [];
    const claims: Promise<void>[] = [];
    for (const [index, request] of requests.entries()) {
      if (!isTickRequest(request)) plain.push({ index, request });
      else claims.push(this.#ticks.claim(request, timeoutMs).then((result) => report(index, result)));
    }
    await Promise.all([...claims, this.#acquisitions.acquire(plain, timeoutMs, report)]);
  }
}

/**
 * Keeps locks in an etcd cluster. See {@link EtcdBackend}.
 *
 * @throws LockConfigError if an option is wrong
 */
export const etcdBackend = (options: EtcdBackendOptions): EtcdBackend => new EtcdBackend(options);
