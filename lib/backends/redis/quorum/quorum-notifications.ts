import type { Redis } from 'ioredis';
import type { Claim, ReleaseNotice } from '../../../core/backend.js';
import { CHANNEL_PREFIX, Notifications } from '../notifications.js';
import { type RedisSource, notificationConnection, keyPrefixOf } from '../connection.js';
import { setBounded } from './bounded-map.js';
import { keyOfVoteKey } from './server-call.js';
import { countBits } from './servers/quorum-servers.js';

/** One channel on all servers for all who wait, as no server knows who is next. */
export const channelFor = (keyPrefix: string) => `${CHANNEL_PREFIX}quorum:${keyPrefix}`;

/** So many keys are remembered: of more, some who wait look by themselves. */
const MAX_KEYS = 1_000;
/** So long the one who waited first has to come; then whoever is first does, and not all at once. */
const HEAD_START_MS = 15;
const MAX_JITTER_MS = 15;

interface ReleaseState {
  readonly token: string;
  serverBits: number;
  /** Whether we are the first of those who wait, as some server has it. */
  isFirstWaiter: boolean;
  wasNotified: boolean;
}

/**
 * Calls those who wait once nearly a majority of the servers has told that the key is free: at once who waited first, as servers
 * know one by name, and the others a little later, in case he does not come. So they do not divide the votes.
 */
export class QuorumNotifications {
  readonly #subscriptions: readonly Notifications[];
  /** Who waits may be known to a bare majority, and one of its calls is lost. */
  readonly #requiredServers: number;
  readonly #releases = new Map<string, ReleaseState>();
  /** Those of this process who wait. */
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

  /** Whether calls arrive now, of all servers but one. */
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

  /** Somebody asks, and so opens what was closed. */
  open(): void {
    for (const subscription of this.#subscriptions) subscription.open();
  }

  /** Somebody must wait. Sees to it that calls will arrive; nobody waits for that. */
  addWaiter({ key, holder }: Claim): void {
    setBounded(this.#waitingHolders, { key, value: holder, maxSize: MAX_KEYS });
    for (const subscription of this.#subscriptions) subscription.start();
  }

  close(): void {
    for (const subscription of this.#subscriptions) subscription.close();
    this.#releases.clear();
    this.#waitingHolders.clear();
  }

  /** The token of the lock that was freed, who waited for it first, and its key. */
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
    // What a server tells late is about a lock before this one.
    if (known && known.token >= token) return known;
    const release: ReleaseState = { token, serverBits: 0, isFirstWaiter: false, wasNotified: false };
    setBounded(this.#releases, { key, value: release, maxSize: MAX_KEYS });
    return release;
  }
}
