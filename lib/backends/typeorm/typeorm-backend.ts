import {
  type AcquireRequest,
  type BatchResult,
  type LockBackend,
  MAX_HISTORY_ENTRIES,
  type OnResult,
  type RequestBatch,
} from '../../core/backend.js';
import type { AcquireResult } from '../../core/backend-results.js';
import type { ReleaseNotice } from '../../core/store-notices.js';
import type { ListRequest, LockPage, LockRecord } from '../../core/lock-record.js';
import type { KeyCleanUp, TickState } from '../../core/tick.js';
import { systemClock } from '../../core/clock.js';
import { rejectWhenRefused } from '../../core/requests/store-timeout.js';
import { unknownResult } from '../../core/unknown-result.js';
import { checkKeyCursor } from '../../core/list-options.js';
import { ConnectionFactory } from './connections/connection-factory.js';
import { MAX_CONNECTIONS } from './connections/connection-options.js';
import { ConnectionPool } from './connections/connection-pool.js';
import { Notifications } from './connections/notifications.js';
import type { Statements } from './dialects/dialect.js';
import {
  type ResolvedTypeormOptions,
  type TypeormBackendOptions,
  resolveTypeormOptions,
} from './typeorm-options.js';
import { IdleRows, removeIdlePage } from './requests/idle-rows.js';
import { isLateGrant, lateGrantError } from './requests/grant-past-token-memory.js';
import { RecordReads } from './requests/record-reads.js';
import { StatementExecutor } from './requests/statement-executor.js';
import { checkWritable } from './requests/read-only-check.js';
import { readTicks, registerTicks, setPaused } from './requests/tick-claims.js';
import { type Session, Timeout, retryWhileBusy } from './connections/session.js';
import { recordFrom } from './table/lock-row.js';
import { LockTable } from './table/lock-table.js';

interface AcquireContext {
  readonly isListening: boolean;
  readonly timeoutMs: number;
  readonly timeout: Timeout;
}

/** What the backend opens at first use, until it is closed. */
interface OpenResources {
  readonly connectionFactory: ConnectionFactory;
  readonly pool: ConnectionPool;
  readonly notifications: Notifications | undefined;
  readonly idleRows: IdleRows;
}

/**
 * Keeps locks in one table of a database. A grant is a conditional write of the key's row. It increases the version of
 * the row, which is the fencing token. All times are those of the database's clock.
 */
export class TypeormBackend implements LockBackend {
  readonly name: string;
  readonly dataSource: object | undefined;
  /** One for each connection. */
  readonly lanes: number;
  /** A statement for more requests would occupy its connection, and keep its rows locked, for too long. */
  readonly maxBatchSize = 1_000;
  readonly #options: ResolvedTypeormOptions;
  readonly #lockTable: LockTable;
  readonly #statements: Statements;
  readonly #executor: StatementExecutor;
  readonly #recordReads = new RecordReads((keys, timeoutMs) =>
    this.#withSession(timeoutMs, async (session) =>
      (await this.#statements.readRows(session, keys)).map(recordFrom),
    ),
  );
  readonly #listeners = new Set<(notice: ReleaseNotice) => void>();
  #resources: OpenResources | undefined;

  /**
   * Opens no connection.
   *
   * @throws LockConfigError if an option is wrong
   */
  constructor(options: TypeormBackendOptions) {
    this.#options = resolveTypeormOptions(options);
    const { type, dialect, table } = this.#options;
    this.name = type;
    this.dataSource = 'createQueryRunner' in options.dataSource ? options.dataSource : undefined;
    this.lanes = dialect.isInProcess ? 1 : MAX_CONNECTIONS;
    this.#lockTable = new LockTable(this.#options);
    this.#statements = dialect.createStatements(table);
    this.#executor = new StatementExecutor({
      dialect,
      table: this.#lockTable,
      statements: this.#statements,
    });
  }

  async execute(
    requests: RequestBatch,
    timeoutMs: number,
    onResult: OnResult = () => undefined,
    onReleaseSent?: (index: number) => void,
  ): Promise<BatchResult> {
    const { pool, notifications } = this.#open();
    const results = { release: [], renew: [], acquire: [] };
    const timeout = new Timeout(timeoutMs);
    // A connection that began to listen after the request was sent may have missed a release.
    const context = { isListening: notifications?.isListening === true, timeoutMs, timeout };
    const report: OnResult = (kind, index, result) => {
      const request = kind === 'acquire' ? requests.acquire?.[index] : undefined;
      const final = request ? this.#onAcquireResult(request, result as AcquireResult, context) : result;
      results[kind][index] = final as never;
      onResult(kind, index, final as never);
    };
    const useSession = (work: (session: Session) => Promise<void>) => pool.use('batch', timeout, work);
    await this.#executor.execute(requests, useSession, { onResult: report, onReleaseSent });
    return results;
  }

  inspect(key: string, timeoutMs: number): Promise<LockRecord | null> {
    return this.#recordReads.read(key, timeoutMs);
  }

  async list(request: ListRequest, timeoutMs: number): Promise<LockPage> {
    checkKeyCursor(request);
    return this.#withSession(timeoutMs, (session) => this.#statements.list(session, request));
  }

  forceRelease(key: string, fencingToken: bigint, timeoutMs: number): Promise<boolean> {
    return this.#withSession(timeoutMs, (session) =>
      this.#statements.forceRelease(session, key, fencingToken),
    );
  }

  readTicks(key: string, timeoutMs: number): Promise<TickState> {
    return this.#withSession(timeoutMs, (session) => readTicks(this.#statements, session, key));
  }

  registerTicks(key: string, timeoutMs: number): Promise<TickState> {
    return this.#withSession(timeoutMs, (session) => registerTicks(this.#statements, session, key));
  }

  setPaused(key: string, isPaused: boolean, timeoutMs: number): Promise<void> {
    const { longestLockWaitMs } = this.#options.dialect;
    const parts = { statements: this.#statements, key, lockWaitMs: longestLockWaitMs ?? 0 };
    return rejectWhenRefused(systemClock, timeoutMs, (onSend) =>
      this.#withSession(timeoutMs, (session) => setPaused({ ...parts, session, onSend }, isPaused)),
    );
  }

  appendHistory(key: string, entry: string, timeoutMs: number): Promise<void> {
    return this.#withSession(timeoutMs, (session) => this.#statements.appendHistory(session, key, entry));
  }

  async readHistory(key: string, timeoutMs: number): Promise<readonly string[]> {
    const history = await this.#withSession(timeoutMs, (session) =>
      this.#statements.readHistory(session, key),
    );
    return history.split('\n', MAX_HISTORY_ENTRIES).filter((entry) => entry !== '');
  }

  async check(timeoutMs: number): Promise<void> {
    await this.#open().pool.use('other', new Timeout(timeoutMs), async (session) => {
      await this.#lockTable.ensureReady(session);
      await this.#lockTable.use(session, () => checkWritable(this.#statements, session));
    });
  }

  async advice(timeoutMs: number): Promise<string | undefined> {
    const { dialect, table } = this.#options;
    return this.#withSession(timeoutMs, async (session) => dialect.advice?.(session, table));
  }

  /** Only PostgreSQL sends release notices. With other databases the listener is never called. */
  onReleased(listener: (notice: ReleaseNotice) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Waits for unfinished requests, each until its timeout at the latest, and closes the connections. */
  async close(): Promise<void> {
    const resources = this.#resources;
    this.#resources = undefined;
    resources?.notifications?.close();
    resources?.idleRows.close();
    await resources?.pool.close();
    await resources?.connectionFactory.close();
  }

  #onAcquireResult(
    { tick, retryWithinMs }: AcquireRequest,
    result: AcquireResult,
    { isListening, timeoutMs, timeout }: AcquireContext,
  ): AcquireResult {
    if (result.kind === 'granted') {
      this.#resources?.idleRows.onGranted();
      if (isLateGrant(timeout, this.#options.tokenMemoryMs)) return unknownResult(lateGrantError());
      if (tick?.cleanUp) void this.#cleanUp(tick.cleanUp, timeoutMs);
    }
    if (result.kind !== 'taken' || retryWithinMs === undefined) return result;
    this.#resources?.notifications?.listenFor(retryWithinMs);
    return isListening ? { ...result, willBeNotified: true } : result;
  }

  /** Deletes the rows of ticks that can no longer be claimed, once a newer one was granted. */
  async #cleanUp(keys: KeyCleanUp, timeoutMs: number): Promise<void> {
    if (!this.#resources) return;
    try {
      await this.#withSession(timeoutMs, (session) => this.#statements.cleanUp(session, keys));
    } catch {
      // The rows do no harm, and the next grant tries again.
    }
  }

  #withSession<T>(timeoutMs: number, work: (session: Session) => Promise<T>): Promise<T> {
    return this.#open().pool.use('other', new Timeout(timeoutMs), async (session) => {
      await this.#lockTable.ensureReady(session);
      return await retryWhileBusy(this.#options.dialect, session.timeout, () => work(session));
    });
  }

  #open(): OpenResources {
    return (this.#resources ??= this.#createResources());
  }

  /** Opens no connection: the first request that needs one does. */
  #createResources(): OpenResources {
    const { dialect, userOptions, table, tokenMemoryMs } = this.#options;
    const connectionFactory = new ConnectionFactory(dialect, userOptions);
    const connect = () => connectionFactory.connect();
    const pool = new ConnectionPool({ maxSize: this.lanes, connect });
    const { listen } = dialect;
    const notifications =
      listen &&
      new Notifications({
        connect,
        listen: (driverConnection, onReleased) => listen(driverConnection, table, onReleased),
        onReleased: (notice) => {
          for (const listener of this.#listeners) listener(notice);
        },
      });
    const idleRowParts = { dialect, statements: this.#statements, tokenMemoryMs, pool };
    const removePage = (afterKey: string) => removeIdlePage(idleRowParts, afterKey);
    const idleRows = new IdleRows({ tokenMemoryMs, removePage });
    return { connectionFactory, pool, notifications, idleRows };
  }
}

/**
 * Keeps locks in a PostgreSQL, MySQL, MariaDB or SQLite database, over its own small connection pool.
 *
 * @throws LockConfigError if an option is wrong or the type of the database is not supported
 */
export const typeormBackend = (options: TypeormBackendOptions): TypeormBackend => new TypeormBackend(options);
