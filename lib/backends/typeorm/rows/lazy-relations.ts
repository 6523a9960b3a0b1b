import type { EntityMetadata, ObjectLiteral } from 'typeorm';

/**
 * The lazy relations of a row that was read. Reading such a property makes TypeORM send a query. What that query returns is
 * not a change: it leaves out rows that are deleted softly, and may come from a replica. Only an assignment is a change.
 */
export class LazyRelations {
  readonly #row: ObjectLiteral;
  /** The row without its lazy relations that were not assigned. */
  readonly #rowWithout: ObjectLiteral;
  readonly #assigned = new Map<string, unknown>();

  constructor({ lazyRelations }: EntityMetadata, row: ObjectLiteral) {
    this.#row = row;
    this.#rowWithout = lazyRelations.length > 0 ? (Object.create(row) as ObjectLiteral) : row;
    for (const { propertyName } of lazyRelations) {
      // What was loaded is kept under the second name.
      for (const name of [propertyName, `__${propertyName}__`])
        Object.defineProperty(this.#rowWithout, name, { value: undefined, configurable: true });
      this.#recordAssignments(propertyName);
    }
  }

  /** Waits for the promises that were assigned. @throws what they reject with */
  async settle(): Promise<void> {
    for (const value of this.#assigned.values()) await value;
  }

  /** The row, to read the values of columns without a query. */
  get readableRow(): ObjectLiteral {
    return this.#rowWithout;
  }

  #recordAssignments(name: string): void {
    const accessor = Object.getOwnPropertyDescriptor(this.#row, name);
    if (!accessor?.set) return;
    const set = accessor.set.bind(this.#row);
    Object.defineProperty(this.#row, name, {
      ...accessor,
      set: (value: unknown) => {
        set(value);
        this.#assigned.set(name, value);
        for (const hidden of [name, `__${name}__`]) Reflect.deleteProperty(this.#rowWithout, hidden);
      },
    });
  }
}
