import type { AcquireRequest, AcquisitionId } from '../../../../core/backend.js';
import type { AcquireResult, ReleaseResult } from '../../../../core/backend-results.js';
import { type Session, retryWhileBusy } from '../../connections/session.js';
import {
  type LockRowColumns,
  MAX_TIME_US,
  isHeldBy,
  microseconds,
  releaseResultFrom,
  snapshotFrom,
  takenResultFrom,
  toRequestRow,
} from '../../table/lock-row.js';
import type { Table } from '../../table/table-definition.js';
import { type ErrorKind, type Statements, driverErrorOf } from '../dialect.js';
import { type Values, statementBuilder } from '../../statements/named-parameters.js';
import { createCommonStatements } from '../../statements/common-statements.js';
import { READ_JOURNAL_MODE, READ_TIME, SET_SYNCHRONOUS, sqliteTexts } from './sqlite-sql.js';

type StatementName = keyof typeof sqliteTexts;

/** Runs a statement of `sqlite-sql.ts` in a transaction. Returns its rows. */
type Run = (name: StatementName, values: Values) => readonly unknown[];

/** With these, a power failure must not undo the transaction. */
const DURABLE_STATEMENTS: readonly StatementName[] = ['claim', 'setTick', 'releaseEndedRun'];

/** Each list is processed in one transaction. Nothing else writes meanwhile, so each step may read, decide and write. */
export function createSqliteStatements({ inSql }: Table): Statements {
  const transaction = transactionRunner(inSql);
  const newestTokens = new NewestTokens();
  return {
    ...createCommonStatements((session, name, values) =>
      transaction(session, (run) => run(name, values), DURABLE_STATEMENTS.includes(name)),
    ),
    acquire: (session, requests) =>
      transaction(session, (run, nowUs) => {
        newestTokens.startAt(nowUs);
        return { nowUs, results: requests.map((request) => acquire(run, newestTokens, request)) };
      }),
    renew: (session, requests) =>
      transaction(session, (run) =>
        requests.map(({ key, holder, leaseMs }) => {
          const renewed = run('renew', { key, holder, leaseUs: microseconds(leaseMs) });
          return { kind: renewed.length > 0 ? 'renewed' : 'lost' };
        }),
      ),
    release: (session, requests) =>
      transaction(session, (run) => requests.map((request) => release(run, request))),
    readRows: (session, keys) =>
      transaction(session, (run) =>
        keys.map((key) => snapshotFrom((run('readRow', { key }) as [LockRowColumns])[0])),
      ),
    removeIdle: (session, keys, memoryMs) =>
      transaction(session, (run) => {
        for (const key of keys) run('removeIdle', { key, memoryUs: microseconds(memoryMs) });
      }),
  };
}

/** Returns a function that runs the statements of `sqlite-sql.ts` in a transaction. */
function transactionRunner(table: string) {
  const statementOf = statementBuilder({ constants: { table } });
  const statements = Object.fromEntries(
    Object.entries(sqliteTexts).map(([name, text]) => [name, statementOf(name, () => text)]),
  ) as Readonly<Record<StatementName, ReturnType<typeof statementOf>>>;
  return <T>(session: Session, steps: (run: Run, nowUs: number) => T, isDurable = false): Promise<T> =>
    inTransaction(
      session,
      (runSql) => {
        const [time] = runSql(READ_TIME) as [{ readonly now: number }];
        const nowUs = time.now;
        const run: Run = (name, values) => {
          const { sql, parametersFrom } = statements[name];
          return runSql(sql, parametersFrom(values, nowUs)) as readonly unknown[];
        };
        return steps(run, nowUs);
      },
      { isDurable },
    );
}

function release(run: Run, { key, holder }: AcquisitionId): ReleaseResult {
  const [released] = run('release', { key, holder }) as [{ readonly others_wait: number }?];
  return releaseResultFrom(released && released.others_wait > 0);
}

function acquire(run: Run, newestTokens: NewestTokens, request: AcquireRequest): AcquireResult | undefined {
  const row = toRequestRow(request, MAX_TIME_US);
  const { key, holder, tokenCount, retryWithinUs } = row;
  const minVersion = newestTokens.minVersionOf(key);
  const { instance, leaseUs } = row;
  const values = { key, holder, instance, leaseUs, tokenCount, minVersion };
  const [granted] = run('grant', values) as [{ readonly version: string }?];
  if (granted) {
    newestTokens.record(key, Number(granted.version) + tokenCount);
    return { kind: 'granted', fencingToken: BigInt(granted.version) };
  }
  const snapshot = snapshotFrom((run('readRow', { key }) as [LockRowColumns])[0]);
  if (snapshot.row && isHeldBy(holder, snapshot)) {
    run('renew', row);
    return { kind: 'granted', fencingToken: snapshot.row.fencingToken };
  }
  if (retryWithinUs !== null) run('markWaiting', row);
  return takenResultFrom(request, snapshot);
}

/**
 * The tokens that this process granted in the current ms of SQLite's clock, which has no smaller unit. Without them, a row
 * that is deleted and inserted again within one ms would get the fencing token that it had before.
 */
class NewestTokens {
  #nowUs = 0;
  readonly #next = new Map<string, number>();

  startAt(nowUs: number): void {
    if (nowUs !== this.#nowUs) this.#next.clear();
    this.#nowUs = nowUs;
  }

  minVersionOf(key: string): number {
    return this.#next.get(key) ?? 0;
  }

  /** `next`: the first token that no grant of the key has. */
  record(key: string, next: number): void {
    this.#next.set(key, next);
  }
}

/**
 * Runs the steps in a transaction that locks the database first, even if the steps only read. The reason is libsql, which
 * does not reset a statement that found the database busy. After that SQLite no longer commits other statements by itself: a
 * write would report success and be lost, or a read would keep its lock, so that no other process could ever commit. Here
 * only `BEGIN` and `COMMIT` can find the database busy.
 *
 * The whole transaction runs in one turn of the event loop. If it kept its lock for longer, another connection of the same
 * process could wait for the lock: its driver would block the event loop, so the lock could not be released. For this reason
 * a transaction whose `COMMIT` finds readers is rolled back, and repeated later.
 *
 * With WAL a power failure undoes the last commits, unless they were `isDurable`. That harms no lock, because all processes
 * that use the file end with the machine. A claimed tick and the end of a run must survive.
 */
export const inTransaction = <T>(
  { timeout, run }: Session,
  steps: (run: Session['run']) => T,
  { isDurable = false } = {},
): Promise<T> =>
  retryWhileBusy({ classifyError }, timeout, () => {
    timeout.throwIfOver();
    run(SET_SYNCHRONOUS + (isDurable || !isWal(run(READ_JOURNAL_MODE)) ? 'FULL' : 'NORMAL'));
    run('BEGIN IMMEDIATE');
    try {
      const result = steps(run);
      run('COMMIT');
      return result;
    } catch (cause) {
      rollBack(run);
      throw cause;
    }
  });

/** Without WAL, `synchronous = NORMAL` could corrupt the file at a power failure. `rows`: of {@link READ_JOURNAL_MODE}. */
export const isWal = (rows: unknown): boolean =>
  (rows as [{ readonly journal_mode: string }])[0].journal_mode === 'wal';

function rollBack(run: Session['run']): void {
  try {
    run('ROLLBACK');
  } catch {
    // Some errors roll the transaction back themselves.
  }
}

export function classifyError(cause: unknown): ErrorKind {
  const { code, message } = driverErrorOf(cause);
  if (code.startsWith('SQLITE_BUSY') || code.startsWith('SQLITE_LOCKED')) return 'busy';
  if (code.startsWith('SQLITE_READONLY')) return 'forbidden';
  if (message.includes('database is locked')) return 'busy';
  if (message.includes('no such table')) return 'no table';
  if (message.includes('no such column') || message.includes('ON CONFLICT clause does not match'))
    return 'no column';
  return 'other';
}
