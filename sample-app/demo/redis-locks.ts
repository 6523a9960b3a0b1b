import { once } from 'node:events';
import { Redis } from 'ioredis';
import type { Settings } from '../settings/settings.js';

/** The locks of one run, as far as they are in Redis. */
export class RedisLocks {
  readonly #client: Redis;
  readonly #run: string;

  constructor({ url, run }: Settings) {
    this.#run = run;
    this.#client = new Redis(url, { lazyConnect: true, retryStrategy: () => null });
    // Without a listener ioredis prints what went wrong.
    this.#client.on('error', () => undefined);
  }

  async connect(): Promise<void> {
    // What `connect` rejects with says only that the connection is closed; the event before it says why.
    this.#client.connect().catch(() => undefined);
    await once(this.#client, 'ready');
  }

  /** The package keeps the last tick of a job for long; nobody will ask for ours again. */
  async remove(): Promise<void> {
    if (this.#client.status === 'ready') await this.#removeKeys();
    this.#client.disconnect();
  }

  async #removeKeys(): Promise<void> {
    const found = this.#client.scanStream({ match: `{${this.#run}[:/]*` }) as AsyncIterable<string[]>;
    for await (const keys of found) if (keys.length > 0) await this.#client.unlink(keys);
  }
}
