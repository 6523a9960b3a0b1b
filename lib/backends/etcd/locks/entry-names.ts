import type { Keyspace } from '../keyspace.js';
import type { KeyRange } from '../rpc/operations.js';
import { randomId } from './stored-lock.js';

interface NamedEntry {
  readonly id: string;
  readonly name: Buffer;
  readonly key: string;
  /** Different for each name of a key that is in use. */
  readonly number: number;
  /** As of {@link EntryNames.startAnew}. */
  readonly generation: string;
}

/**
 * The names of the entries of this process in etcd. A later acquisition of a key gets the name of an earlier one. Otherwise each
 * acquisition would leave a deleted name, which etcd keeps in its index until its history is compacted, and reads whenever it
 * looks for the entries of the key.
 *
 * A name is free only when no request can create its entry any more.
 */
export class EntryNames {
  readonly #keyspace: Keyspace;
  /** By key and holder. */
  readonly #byId = new Map<string, NamedEntry>();
  readonly #byName = new Map<string, NamedEntry>();
  /** The numbers in use, by key. */
  readonly #numbers = new Map<string, Set<number>>();
  #generation = randomId();

  constructor(keyspace: Keyspace) {
    this.#keyspace = keyspace;
  }

  /** The name of the entry of this holder, also if it has none in etcd yet. */
  nameOf(key: string, holder: string): Buffer {
    return this.find(key, holder) ?? this.#add(key, holder);
  }

  find(key: string, holder: string): Buffer | undefined {
    return this.#byId.get(idOf(key, holder))?.name;
  }

  /** The entry is gone, and nothing can create it any more. */
  free(name: Buffer | string): void {
    const entry = this.#byName.get(name.toString());
    if (!entry) return;
    this.#byName.delete(name.toString());
    this.#byId.delete(entry.id);
    const numbers = this.#numbers.get(entry.key);
    if (entry.generation !== this.#generation || !numbers?.delete(entry.number)) return;
    if (numbers.size === 0) this.#numbers.delete(entry.key);
  }

  /** A request with an unknown outcome may create an entry later. From now on, all new names differ from the present ones. */
  startAnew(): void {
    this.#generation = randomId();
    this.#numbers.clear();
  }

  #add(key: string, holder: string): Buffer {
    const numbers = this.#numbers.get(key) ?? new Set<number>();
    this.#numbers.set(key, numbers);
    let number = 0;
    while (numbers.has(number)) number += 1;
    numbers.add(number);
    const generation = this.#generation;
    const name = this.#keyspace.lock(key, `${generation}.${number}`);
    const entry = { id: idOf(key, holder), name, key, number, generation };
    this.#byId.set(entry.id, entry);
    this.#byName.set(name.toString(), entry);
    return name;
  }
}

/** A key of a lock has no NUL. */
const idOf = (key: string, holder: string) => `${key}\0${holder}`;

/** Where to look for the entry of this holder. If its name is not known, as of a lock of another backend: among all of its key. */
export function entriesOf(
  { keyspace, names }: { readonly keyspace: Keyspace; readonly names: EntryNames },
  key: string,
  holder: string,
): KeyRange {
  const name = names.find(key, holder);
  return name ? { key: name } : keyspace.locksOf(key);
}
