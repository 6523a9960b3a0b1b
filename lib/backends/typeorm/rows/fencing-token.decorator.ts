import { Column, type EntityMetadata, type ValueTransformer } from 'typeorm';
import { LockConfigError } from '../../../core/errors.js';
import { shareAcrossCopies } from '../../../core/package-copies.js';
import type { ColumnMetadata } from './database.js';

export interface FencingTokenOptions {
  /** As the database knows the column, if not as TypeORM would call it. */
  name?: string;
  /**
   * Load it with the entity. Without it, what `find` brings can be sent as JSON, which knows no bigint.
   *
   * @default false
   */
  select?: boolean;
}

/** Also what the column is known by. */
const asBigint = shareAcrossCopies<ValueTransformer>('FencingToken', () => ({
  to: (token: unknown) => (typeof token === 'bigint' ? String(token) : token),
  from: (stored: string | number | bigint | null | undefined) =>
    stored === null || stored === undefined ? stored : BigInt(stored),
}));

/**
 * The column in which {@link fencedUpdate} keeps the newest fencing token that wrote the row: a BIGINT, NULL until the
 * first such write. Nothing else has to read or write it. It needs a class: a table of an `EntitySchema` has no place for it.
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
