import type { ListRequest } from './lock-record.js';
import { LockConfigError } from './errors.js';
import { formatValue } from './format.js';
import { isStorable } from './key.js';
import { OptionErrors } from './option-errors.js';

export interface ListOptions {
  /**
   * Only keys that start with this text.
   *
   * @default '' for all keys
   */
  prefix?: string;
  /** The `cursor` of the previous page. Without it, the first page. */
  cursor?: string;
  /**
   * The largest number of locks on the page, at most 1 000.
   *
   * @default 100
   */
  limit?: number;
}

export const MAX_LIMIT = 1_000;
export const DEFAULT_LIMIT = 100;
const OPTIONS = ['prefix', 'cursor', 'limit'] as const;

/** @throws LockConfigError */
export function checkListOptions(value: unknown): void {
  const errors = new OptionErrors();
  if (typeof value === 'string')
    errors.add(`expected options to be an object, got ${formatValue(value)}; write { prefix: … }`);
  errors.throwIfAny('Wrong options of list()');
  const { prefix, cursor, limit } = errors.object('options', value, OPTIONS);
  const isText = typeof prefix === 'string' && isStorable(prefix);
  errors.expect('options.prefix', prefix, 'a well-formed text without NUL', isText);
  const isCursor = typeof cursor === 'string' && cursor !== '';
  errors.expect('options.cursor', cursor, 'the cursor of a page', isCursor);
  const isInRange = Number.isInteger(limit) && (limit as number) >= 1 && (limit as number) <= MAX_LIMIT;
  errors.expect('options.limit', limit, `a whole number from 1 to ${MAX_LIMIT}`, isInRange);
  errors.throwIfAny('Wrong options of list()');
}

/**
 * For stores whose cursor is the last key of a page.
 *
 * @throws LockConfigError if the cursor cannot be one
 */
export function checkKeyCursor({ prefix, cursor }: ListRequest): void {
  if (cursor !== undefined && !cursor.startsWith(prefix)) throw wrongCursorError(cursor);
}

export const wrongCursorError = (cursor: string) =>
  new LockConfigError(
    `Expected options.cursor to be the cursor that list() returned for the same prefix, got ${formatValue(cursor)}.`,
  );
