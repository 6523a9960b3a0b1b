import {
  type AcquireRequest,
  MAX_HISTORY_ENTRIES,
  type RenewRequest,
  type RenewResult,
} from '../../../../core/backend.js';
import {
  type GrantOutcome,
  type LockRowSnapshot,
  MAX_TIME_US,
  expectedValuesOf,
  microseconds,
  releaseResultFrom,
  snapshotFrom,
  toRequestRow,
} from '../../table/lock-row.js';
import type { Session, Statements, Table } from '../dialect.js';
import { READ_TIME, sqliteSql } from './sqlite-sql.js';
import { inTransaction } from './sqlite-transaction.js';

interface Row {
  readonly holder: string | null;
  readonly instance: string;
  /** As text, because it may exceed the safe integers. */
  readonly version: string;
  readonly expires_at: number;
  readonly acquired_at: number;
  readonly tick: number | null;
  readonly attempt: number | null;
  readonly waiting_until: number | null;
}

type Sql = ReturnType<typeof sqliteSql>;

type Run = Session['run'];

/** What one transaction uses: it runs statements, at one time of the database. */
interface Transaction {
  readonly run: Run;
  readonly nowUs: number;
}

/**
 * Runs the statements of `sqlite-sql.ts`. Each list is processed in one transaction. Nothing else writes meanwhile, so each
 * step may read, decide and write.
 */
export function createSqliteStatements({ inSql }: Table): Statements {
  const sql = sqliteSql(inSql);
  return { ...leases(sql), ...releases(sql), ...ticks(sql), ...rows(sql) };
}

/** Runs the steps in a transaction, with the time that it reads first. */
const inTimedTransaction = <T>(
  session: Session,
  steps: (transaction: Transaction) => T,
  options?: { isDurable: true },
) =>
  inTransaction(
    session,
    (run) => steps({ run, nowUs: (run(READ_TIME) as [{ now: number }])[0].now }),
    options,
  );

function leases(sql: Sql): Pick<Statements, 'acquire' | 'renew'> {
  const newestTokens = new NewestTokens();
  return {
    acquire: (session, requests) =>
      inTimedTransaction(session, (transaction) => ({
        nowUs: transaction.nowUs,
        outcomes: requests.map((request) => acquire(transaction, sql, newestTokens, request)),
      })),
    renew: (session, requests) =>
      inTimedTransaction(session, (transaction) =>
        requests.map((request) => renew(transaction, sql, request)),
      ),
  };
}

function acquire(
  transaction: Transaction,
  sql: Sql,
  newestTokens: NewestTokens,
  request: AcquireRequest,
): GrantOutcome {
  const { run, nowUs } = transaction;
  const { key, holder, leaseUs, retryWithinUs } = toRequestRow(request, MAX_TIME_US);
  const granted = tryGrant(transaction, sql, newestTokens, request);
  if (granted) return granted;
  // The lease in the row has not ended, otherwise the key had been granted.
  const row = rowOf(run, sql, key);
  if (row?.holder === holder) {
    run(sql.extendLease, [Math.max(row.expires_at, nowUs + leaseUs), key]);
    return { fencingToken: BigInt(row.version) };
  }
  if (retryWithinUs !== null && (row?.waiting_until ?? 0) < nowUs + retryWithinUs / 2)
    run(sql.markWaiting, [nowUs + retryWithinUs, key]);
  return { snapshot: snapshotOf(nowUs, row) };
}

function tryGrant(
  { run, nowUs }: Transaction,
  sql: Sql,
  newestTokens: NewestTokens,
  request: AcquireRequest,
): GrantOutcome {
  const { key, holder, instance, leaseUs, tokenCount } = toRequestRow(request, MAX_TIME_US);
  const version = newestTokens.firstTokenFor(key, nowUs);
  const values = [key, holder, instance, version, tokenCount, nowUs + leaseUs, nowUs];
  const [granted] = run(sql.grant, values) as [Pick<Row, 'version'>?];
  if (!granted) return undefined;
  newestTokens.record(key, Number(granted.version) + tokenCount);
  return { fencingToken: BigInt(granted.version) };
}

function renew({ run, nowUs }: Transaction, sql: Sql, { key, holder, leaseMs }: RenewRequest): RenewResult {
  const row = rowOf(run, sql, key);
  if (!row || row.expires_at <= nowUs || row.holder !== holder) return { kind: 'lost' };
  run(sql.extendLease, [Math.max(row.expires_at, nowUs + microseconds(leaseMs)), key]);
  return { kind: 'renewed' };
}

function releases(sql: Sql): Pick<Statements, 'release' | 'forceRelease' | 'releaseEndedRun'> {
  const resultOf = (rows: unknown, nowUs: number) => {
    const [released] = rows as [Pick<Row, 'waiting_until'>?];
    return releaseResultFrom(released && -(released.waiting_until ?? 0) > nowUs);
  };
  return {
    release: (session, claims) =>
      inTimedTransaction(session, ({ run, nowUs }) =>
        claims.map(({ key, holder }) => resultOf(run(sql.release, [nowUs, key, holder, nowUs]), nowUs)),
      ),
    forceRelease: (session, key, fencingToken) =>
      inTimedTransaction(session, ({ run, nowUs }) => {
        const released = run(sql.forceRelease, [nowUs, key, String(fencingToken), nowUs]);
        return (released as unknown[]).length === 1;
      }),
    releaseEndedRun: (session, { key, holder }) =>
      inTimedTransaction(
        session,
        ({ run, nowUs }) => resultOf(run(sql.releaseEndedRun, [nowUs, key, holder]), nowUs),
        { isDurable: true },
      ),
  };
}

const ticks = (sql: Sql): Pick<Statements, 'claim' | 'register'> => ({
  claim(session, request, { row, attempt, notAfterUs }) {
    const { key, holder, instance, leaseUs, tokenCount } = toRequestRow(request, MAX_TIME_US);
    const claim = ({ run, nowUs }: Transaction) => {
      if (nowUs > notAfterUs) return undefined;
      const lease = [nowUs, tokenCount, nowUs + leaseUs, nowUs];
      const grant = [holder, instance, ...lease, request.tick?.tickMs, attempt];
      const granted = run(sql.claim, [...grant, key, ...expectedValuesOf(row)]);
      const [grantedRow] = granted as [Pick<Row, 'version'>?];
      return grantedRow && BigInt(grantedRow.version);
    };
    return inTimedTransaction(session, claim, { isDurable: true });
  },
  register(session, key, tickMs) {
    const register = (run: Run) => (run(sql.register, [tickMs, key]) as unknown[]).length === 1;
    return inTransaction(session, register, { isDurable: true });
  },
});

const rows = (
  sql: Sql,
): Pick<Statements, 'readRow' | 'insertMissing' | 'appendHistory' | 'readHistory' | 'cleanUp'> => ({
  readRow: (session, key) =>
    inTimedTransaction(session, ({ run, nowUs }) => snapshotOf(nowUs, rowOf(run, sql, key))),
  insertMissing: (session, key) => inTransaction(session, (run) => void run(sql.insertMissing, [key])),
  appendHistory: (session, key, entry) =>
    inTransaction(session, (run) => {
      const entries = [entry, ...historyOf(run, sql, key).split('\n')].slice(0, MAX_HISTORY_ENTRIES);
      run(sql.writeHistory, [key, entries.join('\n')]);
    }),
  readHistory: (session, key) => inTransaction(session, (run) => historyOf(run, sql, key)),
  cleanUp: (session, { fromKey, beforeKey, afterMs }) =>
    inTimedTransaction(session, ({ run, nowUs }) =>
      run(sql.cleanUp, [fromKey, beforeKey, nowUs, nowUs - microseconds(afterMs)]),
    ),
});

const rowOf = (run: Run, sql: Sql, key: string) => (run(sql.readRow, [key]) as [Row?])[0];

const historyOf = (run: Run, sql: Sql, key: string) =>
  (run(sql.readHistory, [key]) as [{ readonly notes: string | null }?])[0]?.notes ?? '';

const snapshotOf = (nowUs: number, row: Row | undefined): LockRowSnapshot =>
  row ? snapshotFrom({ ...row, store_time: nowUs }) : { nowUs };

/**
 * The tokens that this process granted in the current ms of SQLite's clock, which has no smaller unit. Without them, a row
 * that is deleted and inserted again within one ms would get the fencing token that it had before.
 */
class NewestTokens {
  #nowUs = 0;
  readonly #next = new Map<string, number>();

  /** The first token of a key that has no row. */
  firstTokenFor(key: string, nowUs: number): number {
    if (nowUs !== this.#nowUs) this.#next.clear();
    this.#nowUs = nowUs;
    return Math.max(nowUs, this.#next.get(key) ?? 0);
  }

  /** `next`: the first token that no grant of the key has. */
  record(key: string, next: number): void {
    this.#next.set(key, next);
  }
}
