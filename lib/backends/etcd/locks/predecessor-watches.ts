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
  /** The id of the watch of each place, by its name. 0: the predecessor is being looked for. */
  readonly #watchIds = new Map<string, number>();
  readonly #places = new Map<number, QueuePlace>();
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
    if (!this.#watchIds.has(name)) {
      this.#watchIds.set(name, 0);
      this.#start(place).catch(() => this.#watchIds.delete(name));
    }
    return true;
  }

  stop(name: Buffer | string): void {
    const text = name.toString();
    const id = this.#watchIds.get(text);
    if (id === undefined) return;
    this.#watchIds.delete(text);
    if (!this.#places.delete(id)) return;
    void this.#stream?.then(
      (stream) => stream.write({ cancel_request: { watch_id: String(id) } }),
      () => undefined,
    );
  }

  close(): void {
    this.#dropStream(this.#stream);
  }

  async #start(place: QueuePlace): Promise<void> {
    const { key, name, createRevision } = place;
    const request = {
      ...this.#keyspace.locksOf(key),
      ...({ sort_order: 'DESCEND', sort_target: 'CREATE', limit: 1, keys_only: true } as const),
      max_create_revision: String(createRevision - 1n),
    };
    const { header, kvs } = await this.#connection.call('KV.Range', request, TIMEOUT_MS);
    if (this.#watchIds.get(name.toString()) !== 0) return;
    const predecessor = kvs[0];
    if (!predecessor) {
      this.#watchIds.delete(name.toString());
      this.#publish({ key });
      return;
    }
    const stream = await (this.#stream ??= this.#open());
    if (this.#watchIds.get(name.toString()) !== 0) return;
    this.#lastId += 1;
    this.#watchIds.set(name.toString(), this.#lastId);
    this.#places.set(this.#lastId, place);
    const afterRead = String(BigInt(header.revision) + 1n);
    const watched = { key: predecessor.key, start_revision: afterRead, watch_id: String(this.#lastId) };
    stream.write({ create_request: { ...watched, filters: ['NOPUT'] } });
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

  /** The predecessor is gone, or the watch has ended: its revision was compacted. */
  #onResponse({ watch_id, canceled, events }: WatchResponse): void {
    if (events.length === 0 && !canceled) return;
    const place = this.#places.get(Number(watch_id));
    if (!place) return;
    if (canceled) {
      this.#places.delete(Number(watch_id));
      this.#watchIds.delete(place.name.toString());
    } else this.stop(place.name);
    this.#publish({ key: place.key });
  }

  /** Notices may be lost until there is another stream, so all waiters ask. */
  #dropStream(stream: Promise<WatchStream> | undefined): void {
    if (!stream || this.#stream !== stream) return;
    this.#stream = undefined;
    this.#watchIds.clear();
    this.#places.clear();
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
