import type { KeyRange } from './rpc/operations.js';

/** A key of a lock has no NUL, so it ends the key. In the order of bytes it comes before all other characters. */
const END = '\0';
const AFTER_END = '\u0001';

/**
 * The names of what the backend keeps in etcd:
 *
 * - `lock/<key> NUL <id>`: a lock, or a place in the queue of its key.
 * - `tick/<key>`: the newest claimed tick.
 * - `history/<key> NUL <id>`: an entry of the history.
 * - `session/<id>`: a process, with one of its leases.
 */
export class Keyspace {
  readonly #prefix: string;

  constructor(prefix: string) {
    this.#prefix = prefix;
  }

  lock(key: string, id: string): Buffer {
    return Buffer.from(`${this.#prefix}lock/${key}${END}${id}`);
  }

  /** The lock of a key and its queue. */
  locksOf(key: string): KeyRange {
    return this.#rangeOf(`lock/${key}`);
  }

  /** The locks whose keys start with the prefix, and come after the cursor. */
  locksFrom(prefix: string, cursor: string | undefined): Required<KeyRange> {
    const key = Buffer.from(`${this.#prefix}lock/${cursor === undefined ? prefix : cursor + AFTER_END}`);
    return { key, range_end: endOfPrefix(Buffer.from(`${this.#prefix}lock/${prefix}`)) };
  }

  keyOfLock(name: Buffer): string {
    const text = name.toString();
    return text.slice(this.#prefix.length + 'lock/'.length, text.indexOf(END));
  }

  tick(key: string): Buffer {
    return Buffer.from(`${this.#prefix}tick/${key}`);
  }

  ticksBetween(fromKey: string, beforeKey: string): KeyRange {
    return { key: this.tick(fromKey), range_end: this.tick(beforeKey) };
  }

  keyOfTick(name: Buffer): string {
    return name.toString().slice(this.#prefix.length + 'tick/'.length);
  }

  historyEntry(key: string, id: string): Buffer {
    return Buffer.from(`${this.#prefix}history/${key}${END}${id}`);
  }

  historyOf(key: string): KeyRange {
    return this.#rangeOf(`history/${key}`);
  }

  session(id: string): Buffer {
    return Buffer.from(`${this.#prefix}session/${id}`);
  }

  #rangeOf(name: string): KeyRange {
    return {
      key: Buffer.from(`${this.#prefix}${name}${END}`),
      range_end: Buffer.from(`${this.#prefix}${name}${AFTER_END}`),
    };
  }
}

/** The first name after all that start with the prefix. No byte of UTF-8 is 0xff. */
function endOfPrefix(prefix: Buffer): Buffer {
  return Buffer.concat([prefix, Buffer.of(0xff)]);
}
