import type { Redis } from 'ioredis';
import type { ReleaseNotice } from '../../../core/store-notices.js';
import { CHANNEL_PREFIX, Notifications } from '../notifications.js';
import { createNotificationClient } from '../client-factory.js';
import { type RedisSource, keyPrefixOf } from '../redis-source.js';
import { setBounded } from './set-bounded.js';
import { keyOfVoteKey } from './server-call.js';
import { countBits } from './servers/quorum-servers.js';

/** One channel for all waiters on all servers, because no single server knows who waits. */
export const channelFor = (keyPrefix: string) => `${CHANNEL_PREFIX}quorum:${keyPrefix}`;

/** How many keys are tracked. Waiters for further keys are not notified and retry after their pause. */
const MAX_KEYS = 1_000;
/** Waiters of several processes that retried at the same moment would split the votes. */
const MAX_JITTER_MS = 10;

interface ReleaseState {
  readonly token: string;
  serverBits: number;
}

/** Notifies waiters once almost a majority of the servers has published that the key is free. */
export class QuorumNotifications {
  readonly #subscriptions: readonly Notifications[];
  /** One less than a majority: perhaps only a bare majority knows that somebody waits, and one of its messages may be lost. */
  readonly #requiredServers: number;
  readonly #releases = new Map<string, ReleaseState>();

  constructor(sources: readonly RedisSource[], { needed, channel }: { needed: number; channel: string }) {
    this.#requiredServers = needed - 1;
    this.#subscriptions = sources.map((source, index) => {
      const keyPrefix = keyPrefixOf(source);
      const connect = () => createNotificationClient(source) as Redis;
      return new Notifications({
        connect,
        channel,
        parse: (message) => this.#parse(message, { bit: 2 ** index, keyPrefix }),
      });
    });
  }

  /** Whether messages arrive from all servers, or from all but one. */
  get isSubscribed(): boolean {
    const subscribed = this.#subscriptions.filter(({ isSubscribed }) => isSubscribed);
    return subscribed.length >= this.#subscriptions.length - 1;
  }

  listen(listener: (notice: ReleaseNotice) => void): () => void {
    const stops = this.#subscriptions.map((subscription) => subscription.listen(listener));
    return () => stops.forEach((stop) => stop());
  }

  /** Allows subscriptions again after `close`: the backend has a new request. */
  open(): void {
    for (const subscription of this.#subscriptions) subscription.open();
  }

  /** Subscribes, without waiting for the subscription: a caller waits. */
  start(): void {
    for (const subscription of this.#subscriptions) subscription.start();
  }

  close(): void {
    for (const subscription of this.#subscriptions) subscription.close();
    this.#releases.clear();
  }

  /** A message is the token of the released lock and its key. */
  #parse(message: string, { bit, keyPrefix }: { bit: number; keyPrefix: string }): ReleaseNotice | undefined {
    const [token = ''] = message.split(' ', 1);
    const key = keyOfVoteKey(message.slice(token.length + 1), keyPrefix);
    let release = this.#releases.get(key);
    // A late message is about an earlier lock than the one that is known.
    if (release && release.token > token) return undefined;
    if (release?.token !== token) {
      release = { token, serverBits: 0 };
      setBounded(this.#releases, { key, value: release, maxSize: MAX_KEYS });
    }
    const before = countBits(release.serverBits);
    release.serverBits |= bit;
    const isEnough = countBits(release.serverBits) >= this.#requiredServers;
    return isEnough && before < this.#requiredServers
      ? { key, inMs: Math.random() * MAX_JITTER_MS }
      : undefined;
  }
}
