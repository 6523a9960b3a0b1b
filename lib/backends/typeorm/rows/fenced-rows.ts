import type {
  EntityManager,
  EntityMetadata,
  EntityTarget,
  ObjectLiteral,
  QueryBuilder,
  UpdateQueryBuilder,
  WhereExpressionBuilder,
} from 'typeorm';
import { LockConfigError } from '../../../core/errors.js';
import { formatValue } from '../../../core/format.js';
import { type ColumnMetadata, dataSourceOf, entityMetadataOf, isMysql } from './database.js';
import { checkIdIsExact, requireId, throwIfVersionGiven } from './entity-snapshot.js';
import { allowTokenUpdate, isFencingToken, tokenGivenError } from './fencing-token.js';
import { forgetInitialRelations } from './find-rows.js';
import {
  checkOwnColumns,
  copyValues,
  copyWhere,
  excludeSoftDeleted,
  isFindOperator,
  isObject,
  isOneValue,
  mergeDeep,
} from './where-conditions.js';
import { writtenValues } from './written-values.js';

/** A table without an entity. Names must not contain quotes, `?` or `:`. */
export interface FencedTable {
  table: string;
  /** The column for the fencing token: a BIGINT, NULL or 0 in rows that have no token yet. */
  fencingToken: string;
}

type Conditions = WhereExpressionBuilder & Pick<QueryBuilder<ObjectLiteral>, 'escape' | 'setParameters'>;

/** The table of fenced reads and writes, in the form that query builders need. */
export interface FencedRows {
  readonly target: string | (new () => ObjectLiteral);
  readonly hasEntity: boolean;
  readonly name: string;
  /** The column's name in the database. */
  readonly tokenColumn: string;
  /** The names of the id columns in the database. Empty for a table without an entity, where they are not known. */
  readonly idColumns: readonly string[];
  /** Makes the update write the values and the token. @throws LockConfigError if the values contain a token */
  setWithToken(update: UpdateQueryBuilder<ObjectLiteral>, values: object, token: string): void;
  /** Adds a copy of the condition, because TypeORM changes the operators in it. */
  addConditions(query: Conditions, where: object): void;
  /** @throws LockConfigError if the condition names a column that each write changes */
  checkUnchanged(where: object): void;
  /** Checks and corrects a row that was read. @throws LockConfigError if the driver has rounded its id */
  onRead(row: ObjectLiteral): void;
  /** Whether the condition can match one row at most. */
  isSingleRow(where: object): boolean;
}

/** @throws LockConfigError if the table or entity cannot be fenced */
export function fencedRows(
  manager: EntityManager,
  target: EntityTarget<ObjectLiteral> | FencedTable,
): FencedRows {
  return isTable(target) ? fencedTableRows(manager, target) : fencedEntityRows(manager, target);
}

/** `undefined` for a table without an entity. */
export const metadataOfTarget = (
  manager: EntityManager,
  target: EntityTarget<ObjectLiteral> | FencedTable,
): EntityMetadata | undefined => (isTable(target) ? undefined : entityMetadataOf(manager, target));

function fencedEntityRows(manager: EntityManager, target: EntityTarget<ObjectLiteral>): FencedRows {
  const metadata = entityMetadataOf(manager, target);
  requireId(metadata);
  const column = fencingColumnOf(metadata);
  return {
    target: metadata.target as FencedRows['target'],
    hasEntity: true,
    name: metadata.name,
    tokenColumn: column.databaseName,
    idColumns: metadata.primaryColumns.map(({ databaseName }) => databaseName),
    setWithToken(update, values, token) {
      if (column.getEntityValue(values) !== undefined) throw tokenGivenError(column.propertyPath);
      checkTokenParent(column, values);
      throwIfVersionGiven(metadata, values);
      update.set(mergeDeep(writtenValues(metadata, values), column.createValueMap(token)));
      allowTokenUpdate(update, column);
    },
    addConditions(query, where) {
      checkOwnColumns('where', metadata, where);
      query.andWhere(copyWhere(where));
      excludeSoftDeleted(query, metadata, where);
    },
    checkUnchanged(where) {
      const changing = [metadata.versionColumn, metadata.updateDateColumn];
      const named = changing.find((column) => column && column.getEntityValue(where) !== undefined);
      if (named) throw changingColumnError(named.propertyPath);
    },
    onRead(row) {
      checkIdIsExact(metadata, row);
      forgetInitialRelations(metadata, row);
    },
    isSingleRow: (where) =>
      metadata.primaryColumns.every((primary) => {
        const value: unknown = primary.getEntityValue(where);
        return value !== undefined && !isFindOperator(value);
      }),
  };
}

/** @throws LockConfigError for `null` in place of the embedded object of the token: its other columns would be left unwritten */
function checkTokenParent({ embeddedMetadata, propertyPath }: ColumnMetadata, values: object): void {
  let parent: unknown = values;
  for (const { propertyName } of embeddedMetadata?.embeddedMetadataTree ?? [])
    parent = (Object(parent) as ObjectLiteral)[propertyName];
  if (parent !== null) return;
  const path = propertyPath.split('.').slice(0, -1).join('.');
  throw new LockConfigError(
    `Expected values.${path} to be an object, got null. It has the fencing token: set its other columns to null one by one.`,
  );
}

/** @throws LockConfigError unless the entity has exactly one */
function fencingColumnOf({ name, columns }: EntityMetadata): ColumnMetadata {
  const [column, another] = columns.filter(isFencingToken);
  if (column && !another) return column;
  throw new LockConfigError(
    `Expected the entity ${name} to have one @FencingToken() column, got ${another ? 'several' : 'none'}.`,
  );
}

function fencedTableRows(manager: EntityManager, { table, fencingToken }: FencedTable): FencedRows {
  checkName('table', table);
  checkName('fencingToken', fencingToken);
  if (dataSourceOf(manager).hasMetadata(table)) {
    throw new LockConfigError(
      `Expected a table without an entity, got '${table}'. Give its entity, with a @FencingToken() column.`,
    );
  }
  return {
    target: table,
    hasEntity: false,
    name: table,
    tokenColumn: fencingToken,
    idColumns: [],
    setWithToken(update, values, token) {
      for (const name of Object.keys(values)) checkName('a name among the values', name);
      // Most databases ignore upper and lower case in names.
      const given = Object.keys(values).find((name) => name.toLowerCase() === fencingToken.toLowerCase());
      if (given !== undefined) throw tokenGivenError(given);
      update.set({ ...copyValues(values), [fencingToken]: token });
    },
    addConditions(query, where) {
      for (const [index, [name, value]] of Object.entries(where).entries()) {
        checkName('a name in the condition', name);
        if (isObject(value) && !isOneValue(value)) {
          const got = isFindOperator(value) ? 'an operator' : formatValue(value);
          throw new LockConfigError(
            `Expected where.${name} to be one value, got ${got}. For more than plain values, use an entity.`,
          );
        }
        query.andWhere(`${query.escape(name)} = :fenced${index}`, { [`fenced${index}`]: value as unknown });
      }
    },
    checkUnchanged: () => undefined,
    onRead: () => undefined,
    isSingleRow: () => false,
  };
}

/** TypeORM before 1.0 does not escape quotes within names. TypeORM and drivers also replace parameters within names. */
function checkName(what: string, name: unknown): void {
  if (typeof name === 'string' && /^[^"`?:\0]+$/.test(name)) return;
  throw new LockConfigError(
    `Expected ${what} to be a name without quotes, question marks and colons, got ${formatValue(name)}.`,
  );
}

const changingColumnError = (name: string) =>
  new LockConfigError(
    `Expected a condition without where.${name}, which writing the fencing token changes: the row would no longer match. ` +
      `Compare it after the read.`,
  );

const isTable = (target: EntityTarget<ObjectLiteral> | FencedTable): target is FencedTable =>
  typeof target === 'object' && 'table' in target && 'fencingToken' in target;

/**
 * The parameters of our own conditions. A statement has the parameters of the user's `Raw()` conditions too, and the later of two
 * with one name would replace the earlier one, so nobody else may use these names.
 */
export const TOKEN_PARAMETER = 'nestjsDistributedLockToken';
export const ROWS_PARAMETER = 'nestjsDistributedLockRows';

/** The types that make the database compare tokens as whole numbers, and return them as text without rounding. */
export function tokenCastsOf(manager: EntityManager): { asNumber: string; asText: string } {
  if (isMysql(manager)) return { asNumber: 'SIGNED', asText: 'CHAR' };
  return { asNumber: 'BIGINT', asText: 'TEXT' };
}

/** The token of the lock, as the value of {@link TOKEN_PARAMETER}. */
export const tokenParameter = (manager: EntityManager): string =>
  `CAST(:${TOKEN_PARAMETER} AS ${tokenCastsOf(manager).asNumber})`;
