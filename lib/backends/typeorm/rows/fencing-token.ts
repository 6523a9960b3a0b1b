import { Column, type ObjectLiteral, type UpdateQueryBuilder, type ValueTransformer } from 'typeorm';
import { LockConfigError } from '../../../core/errors.js';
import { shareAcrossCopies } from '../../../core/package-copies.js';
import type { ColumnMetadata } from './database.js';

export interface FencingTokenOptions {
  /** The column's name in the database. By default TypeORM's naming strategy chooses it. */
  name?: string;
  /**
   * Load the token with the entity. By default it is not loaded, because JSON has no bigint, and entities are often
   * sent as JSON.
   *
   * @default false
   */
  select?: boolean;
}

/** Converts between bigint and the column. Also identifies the column as a fencing token. */
const asBigint = shareAcrossCopies<ValueTransformer>('FencingToken', () => ({
  to: (token: unknown) => (typeof token === 'bigint' ? String(token) : token),
  from: (stored: string | number | bigint | null | undefined) =>
    stored === null || stored === undefined ? stored : BigInt(stored),
}));

/**
 * The column in which {@link fencedUpdate} keeps the newest fencing token of the row: a BIGINT, NULL until the first
 * fenced read or write. Your code does not read or write it, and TypeORM leaves it out of every update, also in `save()`.
 * It needs an entity class, not an `EntitySchema`.
 *
 * ```ts
 * @FencingToken()
 * fencingToken?: bigint;
 * ```
 */
export const FencingToken = ({ name, select = false }: FencingTokenOptions = {}): PropertyDecorator =>
  Column({
    ...(name !== undefined && { name }),
    type: 'bigint',
    nullable: true,
    select,
    // A save() would write back an older token, or NULL from an object that was saved before.
    update: false,
    transformer: asBigint,
  });

/** Lets this one statement write the token. TypeORM builds a statement in one step, so no other sees the change. */
export function allowTokenUpdate(query: UpdateQueryBuilder<ObjectLiteral>, token: ColumnMetadata): void {
  const getQuery = query.getQuery.bind(query);
  query.getQuery = () => {
    const { isUpdate } = token;
    token.isUpdate = true;
    try {
      return getQuery();
    } finally {
      token.isUpdate = isUpdate;
    }
  };
}

export const isFencingToken = ({ transformer }: ColumnMetadata): boolean => transformer === asBigint;

export const tokenGivenError = (name: string) =>
  new LockConfigError(
    `Expected values without '${name}', where only fencedFindOne() and fencedUpdate() write, got one. Leave it out.`,
  );
