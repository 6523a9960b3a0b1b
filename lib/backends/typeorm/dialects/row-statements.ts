import type { Session } from '../requests/session.js';
import type { Claim, ReleaseResult, TickRequest } from '../../../core/backend.js';
import type { ListRequest, LockPage } from '../../../core/lock-record.js';
import type { KeyCleanUp } from '../../../core/tick.js';
import {
  type LockRow,
  type LockRowColumns,
  type LockRowSnapshot,
  type Text,
  microseconds,
  recordFrom,
  releaseResultFrom,
  snapshotFrom,
  textFrom,
  toRequestRow,
} from '../table/lock-row.js';
import type { Values } from './named-parameters.js';

type RowStatement =
  'readRow' | 'readPage' | 'list' | 'insertMissing' | TickStatement | HistoryStatement | 'forceRelease';

type TickStatement = 'claim' | 'register' | 'releaseEndedRun' | 'cleanUp';
type HistoryStatement = 'appendHistory' | 'readHistory';

/** What differs between databases: the texts of the statements on single rows, with named parameters. */
export type RowStatementTexts = Readonly<Record<RowStatement, string>>;

/** Runs a statement. Returns the rows that it returns, or something for each row that it has changed. */
type RunStatement = (session: Session, name: RowStatement, values: Values) => Promise<readonly unknown[]>;

/** No key is greater than a prefix with this text after it: keys have at most 512 characters. */
const AFTER_ALL_KEYS = '\u{10FFFF}'.repeat(512);

type KeyColumns = LockRowColumns & { readonly key: Text };

type ReleasedRows = readonly [{ readonly others_wait: boolean | number }?];

/** The conditions under which a tick is granted. */
interface ClaimConditions {
  /** The row as it was read. */
  readonly row: LockRow;
  readonly attempt: number;
  /** In µs of the database's clock. */
  readonly notAfterUs: number;
}

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

export type RowStatements = ReturnType<typeof createRowStatements>;

/** The statements on single rows. This function is long because it is a list: each member runs one statement. */
export const createRowStatements = (run: RunStatement) => ({
  async readRow(session: Session, key: string): Promise<LockRowSnapshot> {
    const [row] = (await run(session, 'readRow', { key })) as [LockRowColumns];
    return snapshotFrom(row);
  },

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

  /** Inserts a free row for the key if it has none. */
  async insertMissing(session: Session, key: string): Promise<void> {
    await run(session, 'insertMissing', { key });
  },

  /** Grants a free key with its tick if the row has not changed. Resolves to the fencing token, otherwise `undefined`. */
  async claim(
    session: Session,
    request: TickRequest,
    { row, attempt, notAfterUs }: ClaimConditions,
  ): Promise<bigint | undefined> {
    const granted = await run(session, 'claim', {
      ...toRequestRow(request, notAfterUs),
      ...{ tickMs: request.tick.tickMs, attempt },
      ...{ oldVersion: row.fencingToken, oldExpiresAtUs: row.expiresAtUs },
      ...{ oldTickMs: row.tickMs, oldAttempt: row.attempt },
    });
    const [grantedRow] = granted as [{ readonly version: string | number }?];
    return grantedRow && BigInt(grantedRow.version);
  },

  /** Writes the tick as the newest claimed one if the row has none. Resolves to whether it did. */
  async register(session: Session, key: string, tickMs: number): Promise<boolean> {
    return (await run(session, 'register', { key, tickMs })).length > 0;
  },

  /** Releases the key of a run that has ended, and marks its tick as ended. */
  async releaseEndedRun(session: Session, { key, holder }: Claim): Promise<ReleaseResult> {
    const [released] = (await run(session, 'releaseEndedRun', { key, holder })) as ReleasedRows;
    return releaseResultFrom(released && Boolean(released.others_wait));
  },

  /** `fencingToken` may be any token of the current grant. */
  async forceRelease(session: Session, key: string, fencingToken: bigint): Promise<boolean> {
    return (await run(session, 'forceRelease', { key, fencingToken })).length > 0;
  },

  async appendHistory(session: Session, key: string, entry: string): Promise<void> {
    await run(session, 'appendHistory', { key, entry });
  },

  /** Reads the lines that {@link appendHistory} has written, as one text. */
  async readHistory(session: Session, key: string): Promise<string> {
    const [row] = (await run(session, 'readHistory', { key })) as [{ readonly notes: Text | null }?];
    return textFrom(row?.notes ?? null);
  },

  /**
   * Deletes the free rows from `fromKey` to before `beforeKey`. A row whose run has no recorded end is deleted only
   * `afterMs` after the run was last known to be active.
   */
  async cleanUp(session: Session, { fromKey, beforeKey, afterMs }: KeyCleanUp): Promise<void> {
    await run(session, 'cleanUp', { fromKey, beforeKey, afterUs: microseconds(afterMs) });
  },
});
