import type { EntityMetadata, ObjectLiteral } from 'typeorm';
import { Faults } from '../../../core/faults.js';
import { shown } from '../../../core/shown.js';
import { isObject, isPlain } from './nested.js';

/**
 * Refuses conditions that TypeORM, depending on its version and options, takes for none or for one that no row meets.
 *
 * @throws LockConfigError
 */
export function checkWhere(path: string, where: unknown): void {
  const faults = new Faults();
  if (!isObject(where) || Array.isArray(where) || Object.keys(where).length === 0) {
    faults.add(`expected ${path} to say which row, such as { id: 7 }, got ${shown(where)}`);
  } else {
    for (const [name, value] of Object.entries(where) as [string, unknown][]) {
      if (isNothing(value)) {
        faults.add(`expected ${path}.${name} to be a value, got ${shown(value)} (IsNull() finds null)`);
      }
    }
  }
  faults.throwIfAny('Wrong condition');
}

/** Also a relation or an embedded object in which nothing is given, which TypeORM leaves out. */
function isNothing(value: unknown): boolean {
  if (!isObject(value)) return value === undefined || value === null;
  const isOneValue = value instanceof Date || ArrayBuffer.isView(value) || Array.isArray(value);
  return !isOneValue && !isOperator(value) && Object.values(value).every(isNothing);
}

/**
 * Refuses a condition about a field of a related row: an `UPDATE` has no join to look there.
 *
 * @throws LockConfigError
 */
export function checkOwnColumns(path: string, { name, relations }: EntityMetadata, where: object): void {
  const faults = new Faults();
  for (const { propertyPath, joinColumns } of relations) {
    const value = propertyPath
      .split('.')
      .reduce<unknown>((inner, property) => (Object(inner) as ObjectLiteral)[property], where);
    if (!isObject(value) || isOperator(value)) continue;
    const own = joinColumns.map(({ referencedColumn }) => referencedColumn?.propertyPath.split('.')[0]);
    for (const field of Object.keys(value).filter((field) => !own.includes(field))) {
      faults.add(
        `expected ${path} to be about columns of ${name}, got ${propertyPath}.${field}, which is one of another row. Find ` +
          `that row first, and name it by its id`,
      );
    }
  }
  faults.throwIfAny('Wrong condition');
}

/** Of `In(…)`, `LessThan(…)` and the like, from whichever copy of TypeORM. */
export const isOperator = (value: unknown): value is object => isObject(value) && '@instanceof' in value;

/**
 * A copy for one use, also of embedded objects: TypeORM puts the values of operators through the transformer of their column,
 * in place.
 */
export const fresh = <Where extends object>(where: Where): Where => copied({ ...where }, new Map()) as Where;

/** `copies`: of what was met already, as related objects may lead back to each other. */
function copied(value: unknown, copies: Map<object, object>): unknown {
  if (Array.isArray(value)) return value.map((item) => copied(item, copies));
  if (!isOperator(value) && !isPlain(value)) return value;
  const known = copies.get(value);
  if (known) return known;
  const copy = Object.create(Object.getPrototypeOf(value) as object | null) as ObjectLiteral;
  copies.set(value, copy);
  for (const [name, field] of Object.entries(value)) copy[name] = copied(field, copies);
  return copy;
}
