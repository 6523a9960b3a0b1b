import type { Redis } from 'ioredis';
import type { Freed } from '../../../core/backend.js';
import { CHANNEL_PREFIX, Calls } from '../calls.js';
import { type RedisSource, callConnection, keyPrefixOf } from '../connection.js';
import { keyFrom } from '../script.js';

/** One channel on all servers for all who wait, as no server knows who is next. */
export const channelFor = (keyPrefix: string) => `${CHANNEL_PREFIX}quorum:${keyPrefix}`;

/** So many freed keys are remembered until the last server has told of them. */
const MOST_TOLD = 1_000;
/** Those who wait in several processes do not come at once, or they would divide the votes. */
const LONGEST_SPREAD_MS = 4;

interface Told {
  readonly token: string;
  servers: number;
  wasCalled: boolean;
}

/** Calls those who wait once a majority of the servers has told that the key is free. */
export class QuorumCalls {
  readonly #ears: readonly Calls[];
  readonly #needed: number;
  readonly #told = new Map<string, Told>();

  constructor(sources: readonly RedisSource[], { needed, channel }: { needed: number; channel: string }) {
    this.#needed = needed;
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

  /** Whether calls arrive now. */
  get areHeard(): boolean {
    return this.#ears.filter((ear) => ear.isHeard).length >= this.#needed;
  }

  listen(listener: (freed: Freed) => void): () => void {
    const stops = this.#ears.map((ear) => ear.listen(listener));
    return () => stops.forEach((stop) => stop());
  }

  /** Sees to it that calls will arrive. Nobody waits for that. */
  start(): void {
    for (const ear of this.#ears) ear.start();
  }

  close(): void {
    for (const ear of this.#ears) ear.close();
    this.#told.clear();
  }

  /** The token of the lock that was freed, and its key. */
  #read(message: string, { bit, keyPrefix }: { bit: number; keyPrefix: string }): Freed | undefined {
    const at = message.indexOf(' ');
    const token = message.slice(0, at);
    const key = keyFrom(message.slice(at + 1), keyPrefix);
    const told = this.#toldOf(key, token);
    if (told.wasCalled || told.token !== token) return undefined;
    told.servers |= bit;
    told.wasCalled = countOf(told.servers) >= this.#needed;
    return told.wasCalled ? { key, inMs: Math.random() * LONGEST_SPREAD_MS } : undefined;
  }

  #toldOf(key: string, token: string): Told {
    const known = this.#told.get(key);
    // What a server tells late is about a lock before this one.
    if (known && known.token >= token) return known;
    const told: Told = { token, servers: 0, wasCalled: false };
    this.#told.delete(key);
    this.#told.set(key, told);
    if (this.#told.size > MOST_TOLD) {
      for (const oldest of this.#told.keys()) {
        this.#told.delete(oldest);
        break;
      }
    }
    return told;
  }
}

function countOf(bits: number): number {
  let count = 0;
  for (let rest = bits; rest !== 0; rest &= rest - 1) count += 1;
  return count;
}
