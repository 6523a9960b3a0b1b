import type { EntityMetadata, ObjectLiteral } from 'typeorm';
import { copyValues, isObject } from './where-conditions.js';

/** An entity, or an embedded object of it. */
type Place = Pick<EntityMetadata, 'embeddeds'>;

/**
 * A copy of the values for one statement. A column whose value is `undefined` is left out. TypeORM does that by itself, but it
 * writes NULL if the column is in an embedded object.
 */
export function writtenValues({ embeddeds }: Place, values: object): ObjectLiteral {
  // Of the same class, so that its listeners are called.
  const copy = Object.create(Object.getPrototypeOf(values) as object | null) as ObjectLiteral;
  for (const [name, value] of Object.entries(values) as [string, unknown][]) {
    if (value === undefined) continue;
    const embedded = embeddeds.find(({ propertyName }) => propertyName === name);
    copy[name] = embedded && isObject(value) ? writtenValues(embedded, value) : copyValue(value);
  }
  return copy;
}

const copyValue = (value: unknown): unknown => (isObject(value) ? copyValues(value) : value);
