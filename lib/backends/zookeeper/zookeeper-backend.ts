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
import { deadlineIn } from '../../core/requests/deadline.js';
import type { ReleaseNotice } from '../../core/store-notices.js';
import type { TickState } from '../../core/tick.js';
import { History } from './history.js';
import { Keyspace } from './keyspace.js';
import { createAbandonedPlaces } from './locks/abandoned-places.js';
import { Acquisitions } from './locks/acquisitions.js';
import { LockExtension } from './locks/lock-extension.js';
import { LockReader } from './locks/lock-reader.js';
import { OwnEntries } from './locks/own-entries.js';
import { PredecessorWatches } from './locks/predecessor-watches.js';
import { QueueReader } from './locks/queue-reader.js';
import { Releases } from './locks/releases.js';
import { Renewals } from './locks/renewals.js';
import { TOKENS_PER_TRANSACTION } from './locks/stored-lock.js';
import { deleteUnknownEntries } from './locks/unknown-entries.js';
import { ZookeeperClient } from './session/client.js';
import { Hosts } from './session/hosts.js';
import { RunRecords } from './ticks/run-records.js';
import { TickClaims } from './ticks/tick-claims.js';
import { TickSnapshots } from './ticks/tick-snapshots.js';
import { TickStates } from './ticks/tick-states.js';
import { type ZookeeperBackendOptions, resolveZookeeperOptions } from './zookeeper-options.js';

/** The rest of the session timeout is for three heartbeats, and for the tick in which a server may keep one to itself. */
const LONGEST_LEASE = 3 / 4;

/**
 * Keeps locks in a ZooKeeper ensemble (3.6 or newer). A majority of its servers decides each request, so locks are exclusive
 * whichever server fails. Fencing tokens follow the transaction numbers of ZooKeeper, which only grow.
 */
export class ZookeeperBackend implements LockBackend {
  readonly name = 'zookeeper';
  /** So that requests for one key keep their order. */
  readonly lanes = 8;
  readonly maxBatchSize = 1_000;
  readonly maxLeaseMs: number;
  readonly maxTokenCount = TOKENS_PER_TRANSACTION;
  readonly #client: ZookeeperClient;
  readonly #ownEntries: OwnEntries;
  readonly #watches: PredecessorWatches;
  readonly #acquisitions: Acquisitions;
  readonly #renewals: Renewals;
  readonly #releases: Releases;
  readonly #claims: TickClaims;
  readonly #ticks: TickStates;
  readonly #reader: LockReader;
  readonly #history: History;

  /**
   * Opens no connection.
   *
   * @throws LockConfigError if an option is wrong
   */
  constructor(options: ZookeeperBackendOptions) {
    const { hosts, tls, digest, path, ...resolved } = resolveZookeeperOptions(options);
    const keyspace = new Keyspace(path);
    const client = new ZookeeperClient({
      ...{ ...resolved, keyspace, hosts: new Hosts(hosts), settings: { tls, digest } },
    });
    const ownEntries = new OwnEntries(client);
    client.isInUse = (session) => ownEntries.isInUse(session);
    // If it fails, the connection is lost again, or the entries are deleted after the next one.
    client.onContinued((session) => {
      deleteUnknownEntries(session, { keyspace, ownEntries }).catch(() => undefined);
    });
    const records = new TickSnapshots(client);
    const requests = new TickStates(client, records);
    const shared = {
      ...{ client, ownEntries, extension: new LockExtension(ownEntries), queues: new QueueReader(client) },
      ...{ watches: new PredecessorWatches(client), runRecords: new RunRecords(client, records) },
    };
    this.maxLeaseMs = Math.floor(resolved.sessionTimeoutMs * LONGEST_LEASE);
    this.#client = client;
    this.#ownEntries = ownEntries;
    this.#watches = shared.watches;
    const abandonedPlaces = createAbandonedPlaces(client);
    this.#acquisitions = new Acquisitions({ ...shared, abandonedPlaces });
    this.#renewals = new Renewals(shared);
    this.#releases = new Releases(shared);
    this.#claims = new TickClaims({ ...shared, records, requests, abandonedPlaces });
    this.#ticks = requests;
    this.#reader = new LockReader(client, ownEntries, shared.queues);
    this.#history = new History(client);
  }

  async execute(
    { acquire = [], renew = [], release = [] }: RequestBatch,
    timeoutMs: number,
    onResult: OnResult = () => undefined,
  ): Promise<BatchResult> {
    this.#client.reopen();
    const run = <Kind extends keyof BatchResult, Request>(
      kind: Kind,
      requests: readonly Request[],
      send: (request: Request) => Promise<BatchResult[Kind][number]>,
    ) =>
      Promise.all(
        requests.map(async (request, index) => {
          const result = await send(request);
          onResult(kind, index, result);
          return result;
        }),
      );
    const [released, renewed, acquired] = await Promise.all([
      run('release', release, (request) => this.#releases.release(request, timeoutMs)),
      run('renew', renew, (request) => this.#renewals.renew(request, timeoutMs)),
      run('acquire', acquire, (request) => this.#acquire(request, timeoutMs)),
    ]);
    return { release: released, renew: renewed, acquire: acquired };
  }

  async inspect(key: string, timeoutMs: number): Promise<LockRecord | null> {
    this.#client.reopen();
    return this.#reader.inspect(key, timeoutMs);
  }

  async list(request: ListRequest, timeoutMs: number): Promise<LockPage> {
    this.#client.reopen();
    return this.#reader.list(request, timeoutMs);
  }

  async forceRelease(key: string, fencingToken: bigint, timeoutMs: number): Promise<boolean> {
    this.#client.reopen();
    return this.#releases.force(key, fencingToken, timeoutMs);
  }

  async readTicks(key: string, timeoutMs: number): Promise<TickState> {
    this.#client.reopen();
    return this.#ticks.read(key, timeoutMs);
  }

  async registerTicks(key: string, timeoutMs: number): Promise<TickState> {
    this.#client.reopen();
    return this.#ticks.register(key, timeoutMs);
  }

  async setPaused(key: string, isPaused: boolean, timeoutMs: number): Promise<void> {
    this.#client.reopen();
    return this.#ticks.setPaused(key, isPaused, timeoutMs);
  }

  async appendHistory(key: string, entry: string, timeoutMs: number): Promise<void> {
    this.#client.reopen();
    return this.#history.append(key, entry, timeoutMs);
  }

  async readHistory(key: string, timeoutMs: number): Promise<readonly string[]> {
    this.#client.reopen();
    return this.#history.read(key, timeoutMs);
  }

  /** Opens a session, and asks a majority of the servers. */
  async check(timeoutMs: number): Promise<void> {
    this.#client.reopen();
    const deadline = deadlineIn(timeoutMs);
    const session = await this.#client.ready(deadline);
    await session.await(session.heartbeat(), deadline);
  }

  onReleased(listener: (notice: ReleaseNotice) => void): () => void {
    return this.#watches.listen(listener);
  }

  /** Locks that are still held end with the session. */
  async close(): Promise<void> {
    const hasHeld = this.#ownEntries.hasHeld;
    this.#ownEntries.close();
    this.#watches.close();
    await this.#client.close(!hasHeld);
  }

  #acquire(request: AcquireRequest, timeoutMs: number): Promise<AcquireResult> {
    return isTickRequest(request)
      ? this.#claims.claim(request, timeoutMs)
      : this.#acquisitions.acquire(request, timeoutMs);
  }
}

/**
 * Keeps locks in a ZooKeeper ensemble. See {@link ZookeeperBackend}.
 *
 * @throws LockConfigError if an option is wrong
 */
export const zookeeperBackend = (options: ZookeeperBackendOptions): ZookeeperBackend =>
  new ZookeeperBackend(options);
