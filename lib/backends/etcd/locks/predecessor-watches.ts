import type { ClientDuplexStream } from '@grpc/grpc-js';
import type { ReleaseNotice } from '../../../core/store-notices.js';
import type { Keyspace } from '../keyspace.js';
import type { EtcdConnection } from '../rpc/etcd-connection.js';
import type { WatchRequest, WatchResponse } from '../rpc/messages.js';

/** A place in the queue of a key. */
interface QueuePlace {
  readonly key: string;
  readonly name: Buffer;
  readonly createRevision: bigint;
}

/** The watch of the entry before a place. */
interface PlaceWatch {
  readonly name: string;
  readonly place: QueuePlace;
  /** Unknown while the entry is being looked for. */
  id: number | undefined;
}

type WatchStream = ClientDuplexStream<WatchRequest, WatchResponse>;

const TIMEOUT_MS = 2_000;

/**
 * Watches the entry before each place in a queue, over one stream. So the end of a lock wakes one waiter, and not all.
 *
 * @see https://zookeeper.apache.org/doc/current/recipes.html, “Locks”, for the recipe
 */
export class PredecessorWatches {
  readonly #connection: EtcdConnection;
  readonly #keyspace: Keyspace;
  readonly #listeners = new Set<(notice: ReleaseNotice) => void>();
  readonly #watches = new Map<string, PlaceWatch>();
  readonly #watchesById = new Map<number, PlaceWatch>();
  #stream: Promise<WatchStream> | undefined;
  #lastId = 0;

  constructor(connection: EtcdConnection, keyspace: Keyspace) {
    this.#connection = connection;
    this.#keyspace = keyspace;
    // A silent host would not end its stream.
    connection.onLeave(() => this.#dropStream(this.#stream));
  }

  listen(listener: (notice: ReleaseNotice) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Publishes a notice when the entry before this place is gone. Returns whether anything listens. */
  watch(place: QueuePlace): boolean {
    const name = place.name.toString();
    if (this.#listeners.size === 0) return false;
    if (!this.#watches.has(name)) {
      const watch: PlaceWatch = { name, place, id: undefined };
      this.#watches.set(name, watch);
      // The waiter relies on a notice, so it must ask again.
      this.#start(watch).catch(() => this.#end(watch));
    }
    return true;
  }

  stop(name: Buffer | string): void {
    const watch = this.#watches.get(name.toString());
    if (!watch) return;
    this.#watches.delete(watch.name);
    const { id } = watch;
    if (id === undefined || !this.#watchesById.delete(id)) return;
    void this.#stream?.then(
      (stream) => stream.write({ cancel_request: { watch_id: String(id) } }),
      () => undefined,
    );
  }

  close(): void {
    this.#dropStream(this.#stream);
  }

  async #start(watch: PlaceWatch): Promise<void> {
    const { key, createRevision } = watch.place;
    const request = {
      ...this.#keyspace.locksOf(key),
      ...({ sort_order: 'DESCEND', sort_target: 'CREATE', limit: 1, keys_only: true } as const),
      max_create_revision: String(createRevision - 1n),
    };
    const { header, kvs } = await this.#connection.call('KV.Range', request, TIMEOUT_MS);
    if (!this.#isCurrent(watch)) return;
    const predecessor = kvs[0];
    if (!predecessor) {
      this.#end(watch);
      return;
    }
    const stream = await (this.#stream ??= this.#open());
    if (!this.#isCurrent(watch)) return;
    this.#lastId += 1;
    watch.id = this.#lastId;
    this.#watchesById.set(watch.id, watch);
    const afterRead = String(BigInt(header.revision) + 1n);
    const watched = { key: predecessor.key, start_revision: afterRead, watch_id: String(watch.id) };
    stream.write({ create_request: { ...watched, filters: ['NOPUT'] } });
  }

  /** Whether it was neither stopped nor lost with its stream, while it was being started. */
  #isCurrent(watch: PlaceWatch): boolean {
    return this.#watches.get(watch.name) === watch;
  }

  /** Ends a watch that etcd does not have, or no longer. */
  #end(watch: PlaceWatch): void {
    if (!this.#isCurrent(watch)) return;
    this.#watches.delete(watch.name);
    if (watch.id !== undefined) this.#watchesById.delete(watch.id);
    this.#publish({ key: watch.place.key });
  }

  #open(): Promise<WatchStream> {
    const opening = this.#connection.openStream('Watch.Watch', TIMEOUT_MS);
    opening.then(
      (stream) => {
        stream.on('data', (response: WatchResponse) => this.#onResponse(response));
        stream.on('error', () => this.#dropStream(opening));
        stream.on('end', () => this.#dropStream(opening));
      },
      () => this.#dropStream(opening),
    );
    return opening;
  }

  #onResponse({ watch_id, created, canceled, events }: WatchResponse): void {
    // Refused: the token of the stream has ended, and all its new watches would be refused, too.
    if (created && canceled) {
      this.#dropStream(this.#stream);
      return;
    }
    const watch = this.#watchesById.get(Number(watch_id));
    if (!watch) return;
    // Its start has been compacted.
    if (canceled) this.#end(watch);
    else if (events.length > 0) {
      this.stop(watch.name);
      this.#publish({ key: watch.place.key });
    }
  }

  /** Notices may be lost until there is another stream, so all waiters ask. */
  #dropStream(stream: Promise<WatchStream> | undefined): void {
    if (!stream || this.#stream !== stream) return;
    this.#stream = undefined;
    this.#watches.clear();
    this.#watchesById.clear();
    stream.then(
      (open) => {
        open.on('error', () => undefined);
        open.cancel();
      },
      () => undefined,
    );
    this.#publish({});
  }

  #publish(notice: ReleaseNotice): void {
    for (const listener of this.#listeners) listener(notice);
  }
}
