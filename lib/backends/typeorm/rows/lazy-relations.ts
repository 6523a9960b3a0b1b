import type { EntityMetadata, ObjectLiteral } from 'typeorm';

/** Where TypeORM keeps what a lazy relation has loaded, or was set to by `repository.merge()`. */
const valueNameOf = (name: string) => `__${name}__`;

/**
 * The lazy relations of a row that was read. Reading such a property makes TypeORM send a query. What that query returns is
 * not a change: it leaves out rows that are deleted softly, and may come from a replica. Only an assignment is a change.
 */
export class LazyRelations {
  readonly #row: ObjectLiteral;
  /** The row without its lazy relations that were not assigned. */
  readonly #rowWithout: ObjectLiteral;
  readonly #names: readonly string[];
  readonly #assigned = new Map<string, unknown>();
  readonly #read = new Set<string>();

  constructor({ lazyRelations }: EntityMetadata, row: ObjectLiteral) {
    this.#row = row;
    this.#rowWithout = Object.create(row) as ObjectLiteral;
    this.#names = lazyRelations.map(({ propertyName }) => propertyName);
    for (const name of this.#names) {
      for (const hidden of [name, valueNameOf(name)])
        Object.defineProperty(this.#rowWithout, hidden, { value: undefined, configurable: true });
      this.#follow(name);
    }
  }

  /** Waits for the promises that were assigned. @throws what they reject with */
  async settle(): Promise<void> {
    for (const value of this.#assigned.values()) await value;
    // What nobody has read was not loaded, so it was merged.
    for (const name of this.#names)
      if (!this.#read.has(name) && Object.hasOwn(this.#row, valueNameOf(name))) this.#show(name);
  }

  /** To read the columns of lazy relations without a query. */
  get readableRow(): ObjectLiteral {
    return this.#rowWithout;
  }

  #follow(name: string): void {
    const accessor = Object.getOwnPropertyDescriptor(this.#row, name);
    if (!accessor?.get || !accessor.set) return;
    const [get, set] = [accessor.get.bind(this.#row) as () => unknown, accessor.set.bind(this.#row)];
    Object.defineProperty(this.#row, name, {
      ...accessor,
      get: () => {
        this.#read.add(name);
        return get();
      },
      set: (value: unknown) => {
        set(value);
        this.#assigned.set(name, value);
        this.#show(name);
      },
    });
  }

  #show(name: string): void {
    for (const hidden of [name, valueNameOf(name)]) Reflect.deleteProperty(this.#rowWithout, hidden);
  }
}
