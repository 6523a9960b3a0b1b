import type { EntityMetadata, ObjectLiteral } from 'typeorm';
import type { ColumnMetadata } from './database.js';
import { copyValues, isObject } from './where-conditions.js';

/** An entity, or an embedded object of it. */
interface Place extends Pick<EntityMetadata, 'embeddeds'> {
  readonly columns: readonly ColumnMetadata[];
}

/**
 * A copy of the values for one statement. A column whose value is `undefined` is left out. TypeORM does that by itself, but it
 * writes NULL if the column is in an embedded object. A column that is an accessor of a class becomes a field: TypeORM would
 * leave it out.
 */
export const writtenValues = ({ ownColumns, embeddeds }: EntityMetadata, values: object): ObjectLiteral =>
  copyPlace({ columns: ownColumns, embeddeds }, values);

function copyPlace({ columns, embeddeds }: Place, values: ObjectLiteral): ObjectLiteral {
  // Of the same class, so that its listeners are called.
  const copy = Object.create(Object.getPrototypeOf(values) as object | null) as ObjectLiteral;
  // A virtual column has the name of a relation, and reading a lazy relation would send a query.
  const own = columns.filter(({ isVirtual }) => !isVirtual).map(({ propertyName }) => propertyName);
  for (const name of new Set([...Object.keys(values), ...own])) {
    const value: unknown = values[name];
    if (value === undefined) continue;
    const embedded = embeddeds.find(({ propertyName }) => propertyName === name);
    const copied = embedded && isObject(value) ? copyPlace(embedded, value) : copyValue(value);
    // An assignment would call the accessor.
    Object.defineProperty(copy, name, {
      value: copied,
      ...{ configurable: true, enumerable: true, writable: true },
    });
  }
  return copy;
}

const copyValue = (value: unknown): unknown => (isObject(value) ? copyValues(value) : value);
