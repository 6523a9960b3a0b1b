import type { Redis } from 'ioredis';
import type { Claim, Freed } from '../../../core/backend.js';
import { CHANNEL_PREFIX, Calls } from '../calls.js';
import { type RedisSource, callConnection, keyPrefixOf } from '../connection.js';
import { addTo } from './bounded.js';
import { keyFrom } from './node-call.js';
import { countOf } from './voters.js';

/** One channel on all servers for all who wait, as no server knows who is next. */
export const channelFor = (keyPrefix: string) => `${CHANNEL_PREFIX}quorum:${keyPrefix}`;

/** So many keys are remembered: of more, some who wait look by themselves. */
const MOST_KEYS = 1_000;
/** So long the one who waited first has to come; then whoever is first does, and not all at once. */
const HEAD_START_MS = 15;
const LONGEST_SPREAD_MS = 15;

interface Told {
  readonly token: string;
  servers: number;
  /** Whether we are the first of those who wait, as some server has it. */
  areWeFirst: boolean;
  wasCalled: boolean;
}

/**
 * Calls those who wait once nearly a majority of the servers has told that the key is free: at once who waited first, as servers
 * know one by name, and the others a little later, in case he does not come. So they do not divide the votes.
 */
export class QuorumCalls {
  readonly #ears: readonly Calls[];
  /** Who waits may be known to a bare majority, and one of its calls is lost. */
  readonly #enough: number;
  readonly #told = new Map<string, Told>();
  /** Those of this process who wait. */
  readonly #waiting = new Map<string, string>();

  constructor(sources: readonly RedisSource[], { needed, channel }: { needed: number; channel: string }) {
    this.#enough = needed - 1;
    this.#ears = sources.map((source, index) => {
      const keyPrefix = keyPrefixOf(source);
      const connect = () => callConnection(source) as Redis;
      return new Calls({
        connect,
        channel,
        read: (message) => this.#read(message, { bit: 2 ** index, keyPrefix }),
      });
    });
  }

  /** Whether calls arrive now, of all servers but one. */
  get areHeard(): boolean {
    return this.#ears.filter((ear) => ear.isHeard).length >= this.#ears.length - 1;
  }

  listen(listener: (freed: Freed) => void): () => void {
    const stops = this.#ears.map((ear) => ear.listen(listener));
    return () => stops.forEach((stop) => stop());
  }

  /** Somebody asks, and so opens what was closed. */
  open(): void {
    for (const ear of this.#ears) ear.open();
  }

  /** Somebody must wait. Sees to it that calls will arrive; nobody waits for that. */
  expect({ key, holder }: Claim): void {
    addTo(this.#waiting, { key, value: holder, most: MOST_KEYS });
    for (const ear of this.#ears) ear.start();
  }

  close(): void {
    for (const ear of this.#ears) ear.close();
    this.#told.clear();
    this.#waiting.clear();
  }

  /** The token of the lock that was freed, who waited for it first, and its key. */
  #read(message: string, { bit, keyPrefix }: { bit: number; keyPrefix: string }): Freed | undefined {
    const [token = '', waiter = ''] = message.split(' ', 2);
    const key = keyFrom(message.slice(token.length + waiter.length + 2), keyPrefix);
    const told = this.#toldOf(key, token);
    if (told.token !== token) return undefined;
    const wereWeFirst = told.areWeFirst;
    told.areWeFirst ||= this.#waiting.get(key) === waiter;
    told.servers |= bit;
    const isNews = told.wasCalled ? told.areWeFirst && !wereWeFirst : countOf(told.servers) >= this.#enough;
    if (!isNews) return undefined;
    told.wasCalled = true;
    return { key, inMs: told.areWeFirst ? 0 : HEAD_START_MS + Math.random() * LONGEST_SPREAD_MS };
  }

  #toldOf(key: string, token: string): Told {
    const known = this.#told.get(key);
    // What a server tells late is about a lock before this one.
    if (known && known.token >= token) return known;
    const told: Told = { token, servers: 0, areWeFirst: false, wasCalled: false };
    addTo(this.#told, { key, value: told, most: MOST_KEYS });
    return told;
  }
}
