import type { Redis } from 'ioredis';
import type { Claim, ReleaseNotice } from '../../../core/backend.js';
import { CHANNEL_PREFIX, Notifications } from '../notifications.js';
import { type RedisSource, notificationConnection, keyPrefixOf } from '../connection.js';
import { setBounded } from './bounded-map.js';
import { keyOfVoteKey } from './server-call.js';
import { countBits } from './servers/quorum-servers.js';

/** One channel for all waiters on all servers, because no single server knows which waiter is first. */
export const channelFor = (keyPrefix: string) => `${CHANNEL_PREFIX}quorum:${keyPrefix}`;

/** How many keys are tracked. Waiters for further keys are not notified and retry after their pause. */
const MAX_KEYS = 1_000;
/** The first waiter may retry at once. The others retry this much later, with jitter so that they do not come together. */
const HEAD_START_MS = 15;
const MAX_JITTER_MS = 15;

interface ReleaseState {
  readonly token: string;
  serverBits: number;
  /** Whether some server names a waiter of this process as the first. */
  isFirstWaiter: boolean;
  wasNotified: boolean;
}

/**
 * Notifies waiters once almost a majority of the servers has published that the key is free. The first waiter, which the
 * servers know by its holder, is notified at once; the others a little later, in case the first does not come. So waiters
 * do not split the votes.
 */
export class QuorumNotifications {
  readonly #subscriptions: readonly Notifications[];
  /** One less than a majority: perhaps only a bare majority knows the waiter, and one of its messages may be lost. */
  readonly #requiredServers: number;
  readonly #releases = new Map<string, ReleaseState>();
  /** The waiters of this process: the holder that each will have, by key. */
  readonly #waitingHolders = new Map<string, string>();

  constructor(sources: readonly RedisSource[], { needed, channel }: { needed: number; channel: string }) {
    this.#requiredServers = needed - 1;
    this.#subscriptions = sources.map((source, index) => {
      const keyPrefix = keyPrefixOf(source);
      const connect = () => notificationConnection(source) as Redis;
      return new Notifications({
        connect,
        channel,
        parse: (message) => this.#parse(message, { bit: 2 ** index, keyPrefix }),
      });
    });
  }

  /** Whether messages arrive from all servers, or from all but one. */
  get isSubscribed(): boolean {
    return (
      this.#subscriptions.filter((subscription) => subscription.isSubscribed).length >=
      this.#subscriptions.length - 1
    );
  }

  listen(listener: (notice: ReleaseNotice) => void): () => void {
    const stops = this.#subscriptions.map((subscription) => subscription.listen(listener));
    return () => stops.forEach((stop) => stop());
  }

  /** Allows subscriptions again after `close`: the backend has a new request. */
  open(): void {
    for (const subscription of this.#subscriptions) subscription.open();
  }

  /** Registers a waiter and starts to subscribe, without waiting for the subscription. */
  addWaiter({ key, holder }: Claim): void {
    setBounded(this.#waitingHolders, { key, value: holder, maxSize: MAX_KEYS });
    for (const subscription of this.#subscriptions) subscription.start();
  }

  close(): void {
    for (const subscription of this.#subscriptions) subscription.close();
    this.#releases.clear();
    this.#waitingHolders.clear();
  }

  /** A message is the token of the released lock, its first waiter, and its key. */
  #parse(message: string, { bit, keyPrefix }: { bit: number; keyPrefix: string }): ReleaseNotice | undefined {
    const [token = '', waiter = ''] = message.split(' ', 2);
    const key = keyOfVoteKey(message.slice(token.length + waiter.length + 2), keyPrefix);
    const release = this.#releaseOf(key, token);
    if (release.token !== token) return undefined;
    const wasFirstWaiter = release.isFirstWaiter;
    release.isFirstWaiter ||= this.#waitingHolders.get(key) === waiter;
    release.serverBits |= bit;
    const willNotify = release.wasNotified
      ? release.isFirstWaiter && !wasFirstWaiter
      : countBits(release.serverBits) >= this.#requiredServers;
    if (!willNotify) return undefined;
    release.wasNotified = true;
    return { key, inMs: release.isFirstWaiter ? 0 : HEAD_START_MS + Math.random() * MAX_JITTER_MS };
  }

  #releaseOf(key: string, token: string): ReleaseState {
    const known = this.#releases.get(key);
    // A late message is about an earlier lock than the one that is known.
    if (known && known.token >= token) return known;
    const release: ReleaseState = { token, serverBits: 0, isFirstWaiter: false, wasNotified: false };
    setBounded(this.#releases, { key, value: release, maxSize: MAX_KEYS });
    return release;
  }
}
