import { type EntityMetadata, IsNull, type ObjectLiteral, type WhereExpressionBuilder } from 'typeorm';
import { formatValue } from '../../../core/format.js';
import { OptionErrors } from '../../../core/option-errors.js';

/**
 * Rejects conditions that TypeORM, depending on its version and options, would ignore or would let match no row. Without
 * `metadata`, for a table without an entity, an object of a class is not known to be the value of a column.
 *
 * @throws LockConfigError that lists all errors
 */
export function checkWhere(path: string, where: unknown, metadata?: EntityMetadata): void {
  const errors = new OptionErrors();
  if (!isObject(where) || Array.isArray(where) || Object.keys(where).length === 0) {
    errors.add(`expected ${path} to say which row, such as { id: 7 }, got ${formatValue(where)}`);
  } else {
    const columnPaths = new Set(metadata?.columns.map(({ propertyPath }) => propertyPath));
    // The id of a row may be a relation.
    for (const { propertyPath } of metadata?.relations ?? []) columnPaths.delete(propertyPath);
    for (const [empty, value] of emptyConditions(where, columnPaths))
      errors.add(`expected ${path}.${empty} to be a value, got ${formatValue(value)} (IsNull() finds null)`);
  }
  errors.throwIfAny('Wrong condition');
}

/** The values that TypeORM would ignore, also within a relation or an embedded object: without them, other rows match. */
function emptyConditions(
  where: ObjectLiteral,
  columnPaths: ReadonlySet<string>,
  parent = '',
): readonly (readonly [path: string, value: unknown])[] {
  return (Object.entries(where) as [string, unknown][]).flatMap(([name, value]) => {
    const path = `${parent}${name}`;
    if (value === undefined || value === null) return [[path, value]] as const;
    if (!isObject(value) || isFindOperator(value) || isOneValue(value)) return [];
    // A value object, which the transformer of the column converts.
    if (columnPaths.has(path) && !isPlainObject(value)) return [];
    return Object.keys(value).length === 0
      ? [[path, value] as const]
      : emptyConditions(value, columnPaths, `${path}.`);
  });
}

/** Whether the object is the value of one column: a date, bytes or a list. */
export const isOneValue = (value: object) =>
  value instanceof Date || ArrayBuffer.isView(value) || Array.isArray(value);

/**
 * Rejects a condition on a field of a related row: an `UPDATE` has no join to read it.
 *
 * @throws LockConfigError that lists all errors
 */
export function checkOwnColumns(path: string, { name, relations }: EntityMetadata, where: object): void {
  const errors = new OptionErrors();
  for (const { propertyPath, joinColumns } of relations) {
    const value = propertyPath
      .split('.')
      .reduce<unknown>((inner, property) => (Object(inner) as ObjectLiteral)[property], where);
    if (!isObject(value) || isFindOperator(value)) continue;
    const own = joinColumns.map(({ referencedColumn }) => referencedColumn?.propertyPath.split('.')[0]);
    for (const field of Object.keys(value).filter((field) => !own.includes(field))) {
      errors.add(
        `expected ${path} to be about columns of ${name}, got ${propertyPath}.${field}, which is one of another row. Find ` +
          `that row first, and name it by its id`,
      );
    }
  }
  errors.throwIfAny('Wrong condition');
}

/** TypeORM excludes soft-deleted rows from reads, but not from writes. A condition on that column decides by itself. */
export function excludeSoftDeleted(
  query: WhereExpressionBuilder,
  { deleteDateColumn }: EntityMetadata,
  where: object,
): void {
  if (deleteDateColumn && deleteDateColumn.getEntityValue(where) === undefined)
    query.andWhere(deleteDateColumn.createValueMap(IsNull()));
}

/** Whether the value is `In(…)`, `LessThan(…)` or another operator, of any copy of TypeORM. */
export const isFindOperator = (value: unknown): value is object => isObject(value) && '@instanceof' in value;

/**
 * A deep copy for one query. TypeORM applies the transformer of a column to the values of operators in place, so a condition
 * that is used twice would be transformed twice.
 */
export const copyWhere = <Where extends object>(where: Where): Where =>
  copyValue({ ...where }, new Map()) as Where;

/** A deep copy for one statement: subscribers may change the values. Objects of a class stay the same. */
export const copyValues = <Values extends object>(values: Values): Values =>
  copyValue(values, new Map()) as Values;

/** `copies`: the objects that were copied already, because related objects may refer to each other. */
function copyValue(value: unknown, copies: Map<object, object>): unknown {
  if (Array.isArray(value)) return value.map((item) => copyValue(item, copies));
  if (!isFindOperator(value) && !isPlainObject(value)) return value;
  const known = copies.get(value);
  if (known) return known;
  const copy = Object.create(Object.getPrototypeOf(value) as object | null) as ObjectLiteral;
  copies.set(value, copy);
  for (const [name, field] of Object.entries(value)) copy[name] = copyValue(field, copies);
  if (isFindOperator(value)) copy['_getSql'] = inParentheses(copy['_getSql']);
  return copy;
}

/** The SQL of `Raw()`. TypeORM joins it with other conditions as it is, so those would belong to only one side of its OR. */
const inParentheses = (getSql: unknown): unknown =>
  typeof getSql === 'function'
    ? (alias: string) => `(${(getSql as (alias: string) => string)(alias)})`
    : getSql;

export const isObject = (value: unknown): value is ObjectLiteral =>
  typeof value === 'object' && value !== null;

/** Whether the value is a plain object, and not a date, bytes or an operator. */
const isPlainObject = (value: unknown): value is ObjectLiteral =>
  isObject(value) && [Object.prototype, null].includes(Object.getPrototypeOf(value) as object | null);

/** Merges the values of columns, also within embedded objects. `other` wins. */
export function mergeDeep(one: object, other: object): ObjectLiteral {
  const both: ObjectLiteral = { ...one };
  for (const [name, value] of Object.entries(other) as [string, unknown][]) {
    const first: unknown = both[name];
    both[name] = isObject(first) && isPlainObject(value) ? mergeDeep(first, value) : value;
  }
  return both;
}
