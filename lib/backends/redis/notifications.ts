import { randomBytes } from 'node:crypto';
import type { Cluster, Redis } from 'ioredis';
import type { ReleaseNotice } from '../../core/backend.js';
import { formatReason } from '../../core/format.js';

export const CHANNEL_PREFIX = 'nestjs-distributed-lock:';

interface NotificationsOptions {
  readonly connect: () => Redis | Cluster;
  /** What a message says, if it is news. */
  readonly parse: (message: string) => ReleaseNotice | undefined;
  /** @default one for this process alone */
  readonly channel?: string;
}

/**
 * A channel, heard over one connection, on which the script calls those who wait. A call only shortens a wait: where
 * channels are forbidden or the connection is down, those who wait look more often.
 */
export class Notifications {
  readonly channel: string;
  readonly #connect: () => Redis | Cluster;
  readonly #parse: (message: string) => ReleaseNotice | undefined;
  readonly #listeners = new Set<(notice: ReleaseNotice) => void>();
  #client: Redis | Cluster | undefined;
  #isSubscribed = false;
  #isForbidden = false;
  #isClosed = false;

  constructor({ connect, parse, channel = randomChannel() }: NotificationsOptions) {
    this.channel = channel;
    this.#connect = connect;
    this.#parse = parse;
  }

  /** Whether calls arrive now. */
  get isSubscribed(): boolean {
    return this.#isSubscribed;
  }

  listen(listener: (notice: ReleaseNotice) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Somebody asks, and so opens what was closed. */
  open(): void {
    this.#isClosed = false;
  }

  /** Sees to it that calls will arrive. Nobody waits for that. Does nothing for whoever asked before the end. */
  start(): void {
    if (this.#client || this.#isForbidden || this.#isClosed) return;
    const client = this.#connect();
    this.#client = client;
    client.on('message', (_channel: string, message: string) => {
      const notice = this.#parse(message);
      if (notice) this.#publish(notice);
    });
    client.on('ready', () => void this.#subscribe(client));
    client.on('close', () => {
      if (this.#client === client) this.#isSubscribed = false;
    });
    // It tries no more, as Sentinel may be told: whoever waits next makes another one.
    client.on('end', () => {
      if (this.#client === client) this.#client = undefined;
    });
    client.on('error', () => undefined); // It is tried again, and told of by the connection for requests.
    client.connect().catch(() => undefined);
  }

  close(): void {
    this.#isClosed = true;
    this.#client?.disconnect();
    this.#client = undefined;
    this.#isSubscribed = false;
  }

  async #subscribe(client: Redis | Cluster): Promise<void> {
    try {
      await client.subscribe(this.channel);
      this.#isSubscribed = this.#client === client;
      this.#publish({}); // What was called before is lost.
    } catch (cause) {
      if (isForbidden(cause)) this.#disable(cause);
    }
  }

  #disable(cause: unknown): void {
    this.#isForbidden = true;
    this.close();
    process.emitWarning(
      `Redis forbids the channel ${this.channel} (${formatReason(cause)}), so those who wait for locks look for them more ` +
        `often instead of being called. Allow it with the ACL rule &${CHANNEL_PREFIX}*.`,
      { type: 'DistributedLockWarning', code: 'LOCK_CALLS_FORBIDDEN' },
    );
  }

  #publish(notice: ReleaseNotice): void {
    for (const listener of this.#listeners) listener(notice);
  }
}

const randomChannel = () => `${CHANNEL_PREFIX}${randomBytes(12).toString('base64url')}`;

const isForbidden = (cause: unknown) => (cause as Error).message.startsWith('NOPERM');
