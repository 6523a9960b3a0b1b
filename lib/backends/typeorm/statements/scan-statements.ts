import type { ListRequest, LockPage } from '../../../core/lock-record.js';
import type { Session } from '../connections/session.js';
import {
  type LockRowColumns,
  type Text,
  microseconds,
  recordFrom,
  snapshotFrom,
  textFrom,
} from '../table/lock-row.js';
import type { RunStatement } from './named-parameters.js';

export type ScanStatement = 'readPage' | 'list';

/** No key is greater than a prefix with this text after it: keys have at most 512 characters. */
const AFTER_ALL_KEYS = '\u{10FFFF}'.repeat(512);

type KeyColumns = LockRowColumns & { readonly key: Text };

/** How a row may be removed, as it was read. */
export interface RemovableRow {
  readonly key: string;
  /**
   * Nobody has held the key or waited for it for the time of the token memory, the clock has passed its tokens, and it has
   * no tick and no history.
   */
  readonly isIdle: boolean;
  /** The row may become idle later. */
  readonly isLock: boolean;
}

interface RemovableRowColumns {
  readonly key: Text;
  readonly is_idle: boolean | number | string;
  readonly is_lock: boolean | number | string;
}

/** Few, because a page is removed in one statement, which occupies a connection and keeps the rows locked. */
export const ROWS_PER_PAGE = 500;

/** The statements that read many rows of the table, page by page. */
export const createScanStatements = (run: RunStatement<ScanStatement>) => ({
  /** Reads the next {@link ROWS_PER_PAGE} rows after the key, in the order of the keys. */
  async readPage(session: Session, afterKey: string, memoryMs: number): Promise<readonly RemovableRow[]> {
    const rows = await run(session, 'readPage', { afterKey, memoryUs: microseconds(memoryMs) });
    return (rows as readonly RemovableRowColumns[]).map(({ key, is_idle, is_lock }) => ({
      ...{ key: textFrom(key), isIdle: Boolean(Number(is_idle)), isLock: Boolean(Number(is_lock)) },
    }));
  },

  /** A page in the order of the keys, compared byte by byte. The cursor is the last key of the page. */
  async list(session: Session, { prefix, cursor = '', limit }: ListRequest): Promise<LockPage> {
    const values = {
      fromKey: prefix,
      afterKey: cursor,
      beforeKey: prefix + AFTER_ALL_KEYS,
      limit: limit + 1,
    };
    const rows = (await run(session, 'list', values)) as KeyColumns[];
    const locks = rows.slice(0, limit).flatMap((row) => {
      const record = recordFrom(snapshotFrom(row));
      return record ? [{ key: textFrom(row.key), ...record }] : [];
    });
    const last = rows.length > limit ? rows[limit - 1] : undefined;
    return last ? { locks, cursor: textFrom(last.key) } : { locks };
  },
});
