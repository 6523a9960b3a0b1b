import { ChannelCredentials, type ClientDuplexStream } from '@grpc/grpc-js';
import { EtcdConnection } from '../../../lib/backends/etcd/rpc/etcd-connection.js';
import type { WatchRequest, WatchResponse } from '../../../lib/backends/etcd/rpc/messages.js';
import {
  keysOf,
  put,
  read,
  readOldest,
  remove,
  wasCreatedAt,
} from '../../../lib/backends/etcd/rpc/operations.js';
import type { Contender, Held } from '../contender.js';

const TIMEOUT_MS = 10_000;
const NO_VALUE = Buffer.alloc(0);

/**
 * The mutex of etcd's own client for Go (`concurrency`), which is also that of Curator: one lease for the process, an entry for
 * each caller, the oldest entry holds the lock, and each caller watches the entry before its own. Over the same client as ours.
 *
 * @see https://github.com/etcd-io/etcd/blob/main/client/v3/concurrency/mutex.go
 */
class RecipeMutex {
  readonly #connection: EtcdConnection;
  readonly #leaseId: string;
  readonly #watcher: WatchResponseWaiter;
  #entries = 0;

  constructor(connection: EtcdConnection, leaseId: string, watcher: WatchResponseWaiter) {
    this.#connection = connection;
    this.#leaseId = leaseId;
    this.#watcher = watcher;
  }

  async acquire(name: string): Promise<Held> {
    this.#entries += 1;
    const key = Buffer.from(`${name}/${this.#leaseId}/${this.#entries}`);
    const all = { key: Buffer.from(`${name}/`), range_end: Buffer.from(`${name}0`) };
    const { header, responses } = await this.#transact({
      compare: [wasCreatedAt(key, 0n)],
      success: [put(key, NO_VALUE, this.#leaseId), readOldest(all)],
    });
    const oldest = keysOf(responses[1])[0];
    if (oldest && !oldest.key.equals(key)) {
      await this.#waitForPredecessor(all, BigInt(header.revision) - 1n);
      // The session may have ended during the wait.
      const own = await this.#transact({ compare: [], success: [read({ key })] });
      if (keysOf(own.responses[0]).length === 0) throw new Error('the session has ended');
    }
    return { release: () => this.#transact({ compare: [], success: [remove({ key })] }) };
  }

  async #waitForPredecessor(all: { key: Buffer; range_end: Buffer }, maxRevision: bigint): Promise<void> {
    const newest = { sort_order: 'DESCEND', sort_target: 'CREATE', limit: 1, keys_only: true } as const;
    for (;;) {
      const request = { ...all, ...newest, max_create_revision: String(maxRevision) };
      const { header, kvs } = await this.#connection.call('KV.Range', request, TIMEOUT_MS);
      if (!kvs[0]) return;
      await this.#watcher.waitForDelete(kvs[0].key, BigInt(header.revision) + 1n);
    }
  }

  #transact(request: Parameters<typeof EtcdConnection.prototype.call<'KV.Txn'>>[1]) {
    return this.#connection.call('KV.Txn', request, TIMEOUT_MS);
  }
}

/** All watches of a process share one stream, as in the client for Go. */
class WatchResponseWaiter {
  readonly #stream: ClientDuplexStream<WatchRequest, WatchResponse>;
  readonly #waiting = new Map<number, () => void>();
  #lastId = 0;

  constructor(stream: ClientDuplexStream<WatchRequest, WatchResponse>) {
    this.#stream = stream;
    stream.on('error', () => undefined);
    stream.on('data', ({ watch_id, events }: WatchResponse) => {
      if (events.length === 0) return;
      this.#waiting.get(Number(watch_id))?.();
      this.#waiting.delete(Number(watch_id));
      stream.write({ cancel_request: { watch_id } });
    });
  }

  waitForDelete(key: Buffer, fromRevision: bigint): Promise<void> {
    this.#lastId += 1;
    const id = this.#lastId;
    const watched = { key, start_revision: String(fromRevision), watch_id: String(id) };
    return new Promise((resolve) => {
      this.#waiting.set(id, resolve);
      this.#stream.write({ create_request: { ...watched, filters: ['NOPUT'] } });
    });
  }

  close(): void {
    this.#stream.cancel();
  }
}

export const all: readonly Contender[] = [
  {
    name: 'etcd recipe',
    store: 'etcd',
    kind: 'floor',
    async open({ leaseMs, stores }) {
      const credentials = ChannelCredentials.createInsecure();
      const parts = { hosts: [stores.etcd], credentials, auth: undefined, keyPrefix: '' };
      const connection = new EtcdConnection(parts);
      const lease = { TTL: String(leaseMs / 1e3), ID: '0' };
      const { ID } = await connection.call('Lease.LeaseGrant', lease, TIMEOUT_MS);
      const keepAlive = () =>
        connection.exchange('Lease.LeaseKeepAlive', { ID }, TIMEOUT_MS).catch(() => undefined);
      const timer = setInterval(() => void keepAlive(), leaseMs / 3);
      const watcher = new WatchResponseWaiter(await connection.openStream('Watch.Watch', TIMEOUT_MS));
      const mutex = new RecipeMutex(connection, ID, watcher);
      return {
        acquire: (name) => mutex.acquire(name),
        async close() {
          clearInterval(timer);
          watcher.close();
          connection.close();
        },
      };
    },
  },
];
