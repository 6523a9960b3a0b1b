import type { ReleaseNotice } from '../../../core/store-notices.js';
import type { ZookeeperClient } from '../session/client.js';

/**
 * The entries before the places of this process in queues, which ZooKeeper watches. So the end of a lock wakes one waiter, and
 * not all.
 *
 * @see https://zookeeper.apache.org/doc/current/recipes.html, “Locks”, for the recipe
 */
export class PredecessorWatches {
  readonly #listeners = new Set<(notice: ReleaseNotice) => void>();
  /** The keys by the paths of the entries. */
  readonly #watched = new Map<string, string>();

  constructor(client: ZookeeperClient) {
    client.onNotice((path) => this.#onNotice(path));
    // Notices may be lost until there is another connection, so all waiters ask.
    client.onLost(() => this.#dropAll());
  }

  listen(listener: (notice: ReleaseNotice) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Whether anything listens, so a watch is of use. */
  get isListened(): boolean {
    return this.#listeners.size > 0;
  }

  /** To be called in the turn in which the request for the watch is sent. */
  add(path: string, key: string, watched: Promise<unknown>): void {
    this.#watched.set(path, key);
    // Without the node there is no watch.
    watched.catch(() => this.#watched.delete(path));
  }

  close(): void {
    this.#watched.clear();
  }

  #onNotice(path: string): void {
    const key = this.#watched.get(path);
    if (key === undefined) return;
    this.#watched.delete(path);
    this.#publish({ key });
  }

  #dropAll(): void {
    if (this.#watched.size === 0) return;
    this.#watched.clear();
    this.#publish({});
  }

  #publish(notice: ReleaseNotice): void {
    for (const listener of this.#listeners) listener(notice);
  }
}
