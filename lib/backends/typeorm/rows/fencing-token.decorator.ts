import { Column, type EntityMetadata, type ValueTransformer } from 'typeorm';
import { LockConfigError } from '../../../core/errors.js';
import { shareAcrossCopies } from '../../../core/package-copies.js';
import type { ColumnMetadata } from './database.js';

export interface FencingTokenOptions {
  /** The column's name in the database. By default TypeORM's naming strategy chooses it. */
  name?: string;
  /**
   * Load the token with the entity. JSON has no bigint, so by default entities come without the token and can be sent as JSON.
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
 * The column in which {@link fencedUpdate} keeps the newest fencing token of the row: a BIGINT, NULL until the first fenced
 * read or write. You need not read or write it. It needs an entity class; an `EntitySchema` cannot have it.
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
    transformer: asBigint,
  });

/** @throws LockConfigError unless the entity has exactly one */
export function fencingColumnOf({ name, columns }: EntityMetadata): ColumnMetadata {
  const [column, another] = columns.filter(({ transformer }) => transformer === asBigint);
  if (column && !another) return column;
  throw new LockConfigError(
    `Expected the entity ${name} to have one @FencingToken() column, got ${another ? 'several' : 'none'}.`,
  );
}
