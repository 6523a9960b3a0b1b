import { randomBytes } from 'node:crypto';
import type { Cluster, Redis } from 'ioredis';
import { type Timer, systemClock } from '../../core/clock.js';
import { formatReason } from '../../core/format.js';
import { withTimeout } from '../../core/requests/store-timeout.js';
import type { ReleaseNotice } from '../../core/store-notices.js';

export const CHANNEL_PREFIX = 'nestjs-distributed-lock:';

/** How often the subscription is tested: a host may vanish, or a node of a Cluster stand still, without closing a connection. */
const TEST_INTERVAL_MS = 3_000;
/** A server that does not confirm the subscription within this time is left. */
const MAX_SILENCE_MS = 3_000;

interface NotificationsOptions {
  readonly connect: () => Redis | Cluster;
  /** Parses a message; `undefined` if it needs no notice. */
  readonly parse: (message: string) => ReleaseNotice | undefined;
  /** @default a random channel, of this backend alone */
  readonly channel?: string;
}

/**
 * Subscribes to the channel on which the script notifies waiters of a release, over a connection of its own. A notification
 * only shortens a wait. Without one, because pub/sub is forbidden or the connection is down, waiters retry more often.
 */
export class Notifications {
  readonly channel: string;
  readonly #connect: () => Redis | Cluster;
  readonly #parse: (message: string) => ReleaseNotice | undefined;
  readonly #listeners = new Set<(notice: ReleaseNotice) => void>();
  #client: Redis | Cluster | undefined;
  #testTimer: Timer | undefined;
  #isSubscribed = false;
  #isForbidden = false;
  #isClosed = false;

  constructor({ connect, parse, channel = randomChannel() }: NotificationsOptions) {
    this.channel = channel;
    this.#connect = connect;
    this.#parse = parse;
  }

  /** Whether notifications arrive now. */
  get isSubscribed(): boolean {
    return this.#isSubscribed;
  }

  listen(listener: (notice: ReleaseNotice) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Allows a subscription again after `close`: the backend has a new request. */
  open(): void {
    this.#isClosed = false;
  }

  /** Starts to subscribe, in the background. Does nothing after `close`, for requests that were sent before it. */
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
    // ioredis has given up, as the options of a Sentinel group may demand. The next waiter opens another connection.
    client.on('end', () => {
      if (this.#client === client) this.#client = undefined;
    });
    client.on('error', () => undefined); // ioredis reconnects, and the connection for requests reports the error.
    client.connect().catch(() => undefined);
    this.#testLater(client);
  }

  close(): void {
    this.#isClosed = true;
    this.#disconnect();
  }

  #disconnect(): void {
    this.#testTimer?.cancel();
    this.#client?.disconnect();
    this.#client = undefined;
    this.#isSubscribed = false;
  }

  #testLater(client: Redis | Cluster): void {
    this.#testTimer?.cancel();
    this.#testTimer = systemClock.after(TEST_INTERVAL_MS, () => void this.#test(client));
  }

  /** Opens another connection if the server of this one is silent. If this one was closed, ioredis itself connects again. */
  async #test(client: Redis | Cluster): Promise<void> {
    const isAlive = client.status !== 'ready' || (await this.#isAnswered(client));
    if (this.#client !== client) return;
    if (isAlive) {
      this.#testLater(client);
    } else {
      this.#disconnect();
      this.start();
    }
  }

  /** A second subscription to the same channel changes nothing. */
  #isAnswered(client: Redis | Cluster): Promise<boolean> {
    const answer = client.subscribe(this.channel).catch(() => undefined);
    return withTimeout(systemClock, MAX_SILENCE_MS, answer);
  }

  async #subscribe(client: Redis | Cluster): Promise<void> {
    try {
      await client.subscribe(this.channel);
      this.#isSubscribed = this.#client === client;
      this.#publish({}); // A notification may have been missed before, so every waiter retries.
    } catch (cause) {
      if (isForbidden(cause)) this.#disable(cause);
    }
  }

  #disable(cause: unknown): void {
    this.#isForbidden = true;
    this.close();
    process.emitWarning(
      `Redis forbids the channel ${this.channel} (${formatReason(cause)}), so waiters retry more often instead of being ` +
        `notified of a release. Allow it with the ACL rule &${CHANNEL_PREFIX}*.`,
      { type: 'DistributedLockWarning', code: 'LOCK_CALLS_FORBIDDEN' },
    );
  }

  #publish(notice: ReleaseNotice): void {
    for (const listener of this.#listeners) listener(notice);
  }
}

const randomChannel = () => `${CHANNEL_PREFIX}${randomBytes(12).toString('base64url')}`;

const isForbidden = (cause: unknown) => (cause as Error).message.startsWith('NOPERM');
