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
      beforeKey: endOf(prefix),
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

const LAST_CHARACTER = 0x10_ff_ff;

/**
 * The least text above all that begin with the prefix. Its characters are those of the prefix but for one, so that a database
 * with another encoding than UTF-8 knows them.
 */
function endOf(prefix: string): string {
  const characters = Array.from(prefix, (character) => character.codePointAt(0) as number);
  const index = characters.findLastIndex((code) => code < LAST_CHARACTER);
  // Surrogates are no characters.
  const next = characters[index] === 0xd7_ff ? 0xe0_00 : (characters[index] ?? LAST_CHARACTER - 1) + 1;
  return String.fromCodePoint(...characters.slice(0, Math.max(index, 0)), next);
}
