import type {
  EntityManager,
  EntityTarget,
  ObjectLiteral,
  QueryBuilder,
  WhereExpressionBuilder,
} from 'typeorm';
import { LockConfigError } from '../../../core/errors.js';
import { shown } from '../../../core/shown.js';
import { dataSourceOf, isMysql } from './database.js';
import { fencingColumnOf } from './fencing-token.decorator.js';
import { merged, nested } from './nested.js';
import { checkOwnColumns, fresh, isOperator } from './where.js';

/**
 * A table without an entity, and its column for the fencing token: a BIGINT, NULL or 0 in rows that have none yet. No name may
 * hold quotes, `?` or `:`.
 */
export interface FencedTable {
  table: string;
  fencingToken: string;
}

type Conditions = WhereExpressionBuilder & Pick<QueryBuilder<ObjectLiteral>, 'escape' | 'setParameters'>;

/** Where fenced writes go, as query builders have to be told of it. */
export interface FencedRows {
  readonly target: string | (new () => ObjectLiteral);
  readonly hasEntity: boolean;
  readonly name: string;
  /** As the database knows it. */
  readonly column: string;
  /** The columns of the id, as the database knows them. Of a table without an entity they are not known. */
  readonly ids: readonly string[];
  /** @throws LockConfigError if a token stands among the values */
  withToken(values: object, token: string): ObjectLiteral;
  /** For one use. */
  narrow(query: Conditions, where: object): void;
  /** Whether the condition surely names one row at most. */
  isOne(where: object): boolean;
}

/** @throws LockConfigError */
export function fencedRows(
  manager: EntityManager,
  target: EntityTarget<ObjectLiteral> | FencedTable,
): FencedRows {
  return isTable(target) ? ofTable(manager, target) : ofEntity(manager, target);
}

function ofEntity(manager: EntityManager, target: EntityTarget<ObjectLiteral>): FencedRows {
  const metadata = dataSourceOf(manager).getMetadata(target);
  const column = fencingColumnOf(metadata);
  return {
    target: metadata.target as FencedRows['target'],
    hasEntity: true,
    name: metadata.name,
    column: column.databaseName,
    ids: metadata.primaryColumns.map(({ databaseName }) => databaseName),
    withToken(values, token) {
      if (column.getEntityValue(values) !== undefined) throw tokenGiven(column.propertyPath);
      return merged(values, nested(column.propertyPath, token));
    },
    narrow(query, where) {
      checkOwnColumns('where', metadata, where);
      query.andWhere(fresh(where));
    },
    isOne: (where) =>
      metadata.primaryColumns.every((primary) => {
        const value: unknown = primary.getEntityValue(where);
        return value !== undefined && !isOperator(value);
      }),
  };
}

function ofTable(manager: EntityManager, { table, fencingToken }: FencedTable): FencedRows {
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
    column: fencingToken,
    ids: [],
    withToken(values, token) {
      for (const name of Object.keys(values)) checkName('a name among the values', name);
      // Most databases take no notice of upper and lower case in names.
      const given = Object.keys(values).find((name) => name.toLowerCase() === fencingToken.toLowerCase());
      if (given !== undefined) throw tokenGiven(given);
      return { ...values, [fencingToken]: token };
    },
    narrow(query, where) {
      for (const [index, [name, value]] of Object.entries(where).entries()) {
        checkName('a name in the condition', name);
        if (isOperator(value)) {
          throw new LockConfigError(
            `Expected where.${name} to be a value, got an operator, which needs an entity.`,
          );
        }
        query.andWhere(`${query.escape(name)} = :fenced${index}`, { [`fenced${index}`]: value as unknown });
      }
    },
    isOne: () => false,
  };
}

/** TypeORM before 1.0 puts names between quotes as they are, and TypeORM and drivers find parameters within names, too. */
function checkName(what: string, name: unknown): void {
  if (typeof name === 'string' && /^[^"`?:\0]+$/.test(name)) return;
  throw new LockConfigError(
    `Expected ${what} to be a name without quotes, question marks and colons, got ${shown(name)}.`,
  );
}

const tokenGiven = (name: string) =>
  new LockConfigError(
    `Expected values without '${name}', where the fencing token of the lock is written, got one. Leave it out.`,
  );

const isTable = (target: EntityTarget<ObjectLiteral> | FencedTable): target is FencedTable =>
  typeof target === 'object' && 'table' in target && 'fencingToken' in target;

/** How the database compares tokens as whole numbers, and tells them without rounding. */
export function castsOf(manager: EntityManager): { asNumber: string; asText: string } {
  if (isMysql(manager)) return { asNumber: 'SIGNED', asText: 'CHAR' };
  return { asNumber: 'BIGINT', asText: 'TEXT' };
}
