import type { QueryRunner } from 'typeorm';
import { shareAcrossCopies } from '../../../../core/package-copies.js';
import { delay } from '../../../../core/real-timers.js';
import { dataSourceOf, isInProcess } from '../database.js';
import { CommitProgress, beforeEachCommit } from './commit-answer.js';
import { EndCounter } from './end-counter.js';
import { isIdle, isRunningExclusive, runExclusive } from './exclusive-runs.js';
import { type Begin, OnlyConnection } from './only-connection.js';
import { PendingEnds, type TransactionEnd } from './pending-ends.js';
import { onEachCommitAnswer } from './query-subscribers.js';
import { separateTransactions } from './separate-transactions.js';
import { isOpenInSqlite } from './sqlite-connection.js';
import {
  brokenSavepointError,
  endedByOtherError,
  neverBegunError,
  noNestedTransactionError,
  transactionEndedError,
} from './transaction-errors.js';
import {
  correctBegin,
  correctRollback,
  depthOf,
  onTransactionEnd,
  rollBackOnce,
} from './transaction-state-correction.js';

type Isolation = Parameters<QueryRunner['startTransaction']>[0];

const POLL_MS = 2;

const guards = shareAcrossCopies('guards of query runners', () => new WeakMap<QueryRunner, RunnerGuard>());

/** The guard of the query runner. The first call puts it in front of the runner's transactions. */
export function guardOf(runner: QueryRunner): RunnerGuard {
  const guard = guards.get(runner) ?? new RunnerGuard(runner);
  guards.set(runner, guard);
  return guard;
}

/** Keeps the transactions of one query runner from beginning or ending within a helper that uses the runner. */
export class RunnerGuard {
  readonly #runner: QueryRunner;
  /** That of an SQLite data source. */
  readonly #onlyConnection: OnlyConnection | undefined;
  readonly #start: (isolation: Isolation) => Promise<void>;
  readonly #commit: () => Promise<void>;
  readonly #rollback: () => Promise<void>;
  /** How many transactions, without those that are savepoints, have begun. */
  #begun = 0;
  readonly #endCounter = new EndCounter();
  readonly #pendingEnds = new PendingEnds();
  #leaveConnection: (() => void) | undefined;
  #beforeCommit: (() => Promise<unknown>) | undefined;
  /** That of the transaction which is ending. */
  #commitCheck: (() => Promise<unknown>) | undefined;
  /** The next COMMIT or ROLLBACK ends the outermost transaction, even if a nested one has begun meanwhile. */
  #isEnding = false;
  /** That of the transaction which began last. */
  #commitProgress = new CommitProgress();
  /** A savepoint could not be rolled back, so a commit would also commit the statements of the failed nested transaction. */
  #isBroken = false;

  constructor(runner: QueryRunner) {
    this.#runner = runner;
    this.#onlyConnection = isInProcess(runner) ? new OnlyConnection(runner, () => isIdle(this)) : undefined;
    if (this.#onlyConnection) {
      onTransactionEnd(runner, () => this.#onEnd());
      const dataSource = dataSourceOf(runner);
      // The query runner is another one after the data source was closed and opened again.
      const currentGuard = () => guardOf(dataSource.createQueryRunner());
      separateTransactions(dataSource, (begin) => currentGuard().runPlainTransaction(begin));
    }
    beforeEachCommit(runner, () => this.#onCommit());
    onEachCommitAnswer(runner, (isSuccess, error) => {
      if (isSuccess) this.#commitProgress.onExecuted();
      else if (!this.#onlyConnection) this.#commitProgress.onFailed(error);
    });
    this.#start = runner.startTransaction.bind(runner);
    this.#commit = runner.commitTransaction.bind(runner);
    this.#rollback = runner.rollbackTransaction.bind(runner);
    runner.startTransaction = (isolation) => {
      const begin: Begin = (mayBegin) => this.#exclusively(() => this.#begin(isolation, mayBegin));
      if (!this.#onlyConnection) return this.#beginUnlessEnded(begin);
      return this.#onlyConnection.begin({ begin, isWithinStep: () => isRunningExclusive(this) });
    };
    runner.commitTransaction = () => this.#end(true);
    runner.rollbackTransaction = () => this.#end(false);
  }

  /** What is known about the COMMIT of the transaction that began last. */
  get commitProgress(): CommitProgress {
    return this.#commitProgress;
  }

  /**
   * Returns a check that throws a `LockConfigError` if the transaction or savepoint in which the query runner is now has ended.
   * A helper with several steps calls the check before each step: a write after ROLLBACK would be committed by itself, or with
   * the outer transaction.
   */
  createTransactionCheck(): () => void {
    const depth = this.#runner.isTransactionActive ? depthOf(this.#runner) : 0;
    return this.#endCounter.createCheck(depth);
  }

  /**
   * Runs the helpers of the query runner one after the other. Transactions begin and end between two helpers, never within one:
   * a statement after ROLLBACK would be committed by itself.
   *
   * @throws LockConfigError if the transaction has ended before the helper could begin
   */
  async run<T>(work: () => Promise<T>): Promise<T> {
    // A subscriber of the application may call a helper from within another one.
    if (isRunningExclusive(this)) return work();
    const checkTransaction = this.createTransactionCheck();
    return runExclusive(this, () => {
      checkTransaction();
      return work();
    });
  }

  /** Does the work outside of other transactions, on the only connection of an SQLite data source. */
  runOutsideOtherTransactions<T>(work: (leave: () => void) => Promise<T>, waitMs?: number): Promise<T> {
    return this.#onlyConnection ? this.#onlyConnection.whenFree(work, waitMs) : work(() => undefined);
  }

  /**
   * Runs a transaction outside of other ones, on the only connection of an SQLite data source. It leaves the connection when COMMIT
   * or ROLLBACK has taken effect, before the subscribers return.
   */
  runTransaction<T>(work: () => Promise<T>, waitMs?: number): Promise<T> {
    return this.runOutsideOtherTransactions((leave) => {
      this.#leaveConnection = leave;
      return work();
    }, waitMs);
  }

  /** Whether this asynchronous context has opened the transaction that is open on the only connection. */
  get isInOwnTransaction(): boolean {
    return this.#onlyConnection?.isInOwnTransaction ?? false;
  }

  /** A transaction within another one is a savepoint of that. */
  runPlainTransaction<T>(work: () => Promise<T>): Promise<T> {
    const isNested = this.#onlyConnection && isRunningExclusive(this.#onlyConnection);
    return isNested ? work() : this.runTransaction(work);
  }

  /**
   * Runs the check right before COMMIT, after all helpers, even those that are not awaited, and after the subscribers. If it rejects,
   * the commit does too.
   */
  checkBeforeCommit(check: () => Promise<unknown>): void {
    this.#beforeCommit = check;
  }

  /**
   * Waits until the nested transactions that the work has begun have ended. They are savepoints, and while one is open, TypeORM
   * commits or rolls back only the savepoint. There is no timeout: it would release the lock before COMMIT.
   */
  async waitForSavepoints(): Promise<void> {
    const isOutermost = () => {
      this.#isEnding = depthOf(this.#runner) <= 1;
      return Promise.resolve(this.#isEnding);
    };
    // Within a run of the queue, because a nested transaction may be about to begin.
    while (!(await this.#exclusively(isOutermost))) await delay(POLL_MS);
  }

  #exclusively<T>(step: (end: () => void) => Promise<T>): Promise<T> {
    return isRunningExclusive(this) ? step(() => undefined) : runExclusive(this, step);
  }

  /** A COMMIT or ROLLBACK has taken effect. */
  #onEnd(): void {
    if (!this.#pendingEnds.takeEffect() || depthOf(this.#runner) > 0) return;
    this.#leaveConnection?.();
    this.#leaveConnection = undefined;
  }

  /** @throws LockConfigError if the outer transaction has ended: a new one would begin on a connection that returns to the pool */
  async #beginUnlessEnded(begin: Begin): Promise<void> {
    const runner = this.#runner;
    const wasOpen = runner.isTransactionActive;
    if (!(await begin(() => runner.isTransactionActive || !wasOpen))) throw transactionEndedError();
  }

  async #begin(isolation: Isolation, mayBegin: () => boolean): Promise<boolean> {
    if (!mayBegin()) return false;
    const runner = this.#runner;
    const depth = depthOf(runner);
    if (depth === 0) {
      this.#isBroken = false;
      this.#commitProgress = new CommitProgress();
    }
    const before = { depth, wasOpen: isOpenInSqlite(runner) };
    await this.#start(isolation).catch((error: unknown) => {
      if (this.#onlyConnection) correctBegin(runner, before);
      // TypeORM also rolls back a transaction that could not begin, which here rolls back the nested one around it.
      if (depth > 1 && depthOf(runner) === depth) this.#isBroken = true;
      throw error;
    });
    if (depth === 0) this.#begun += 1;
    return true;
  }

  async #end(isCommit: boolean): Promise<void> {
    // TypeORM rejects it. It must not wait here, and then end a transaction that has begun meanwhile.
    const isOpen = this.#runner.isTransactionActive || !this.#onlyConnection;
    if (!isOpen) return isCommit ? this.#commit() : this.#rollback();
    if (this.#onlyConnection?.isUsedByOthers) throw neverBegunError();
    const isOuter = this.#isEnding || depthOf(this.#runner) === 1;
    // TypeORM also rolls back a transaction that could not begin, which would end the locked transaction around it.
    if (isOuter && !this.#isEnding && this.#beforeCommit) throw noNestedTransactionError();
    this.#isEnding = false;
    const begun = this.#begun;
    const endOnce = (endStep: () => void) => {
      // The transaction has ended while its end was queued, and another one has begun.
      if (this.#begun !== begun) throw endedByOtherError();
      return this.#endOnce(isOuter, isCommit, endStep);
    };
    while (!(await this.#exclusively(endOnce))) await delay(POLL_MS);
  }

  /** Resolves to `false` if a nested transaction began while this end was queued: TypeORM would end the nested one instead. */
  async #endOnce(isOuter: boolean, isCommit: boolean, endStep: () => void): Promise<boolean> {
    const depth = depthOf(this.#runner);
    const isSavepoint = depth > 1;
    if (isOuter && isSavepoint) return false;
    // A released savepoint is not counted: later statements are committed or rolled back together with it anyway.
    if (!isSavepoint || !isCommit) this.#endCounter.add(depth);
    if (!isSavepoint) {
      this.#commitCheck = this.#beforeCommit;
      this.#beforeCommit = undefined;
    }
    const end = this.#pendingEnds.add(endStep);
    try {
      await (isCommit ? this.#commitOnce(isSavepoint) : this.#rollBack(depth, end));
    } finally {
      this.#pendingEnds.remove(end);
    }
    return true;
  }

  /** COMMIT or RELEASE SAVEPOINT follows. */
  async #onCommit(): Promise<void> {
    if (depthOf(this.#runner) > 1) return;
    const check = this.#commitCheck;
    this.#commitCheck = undefined;
    await check?.();
    if (this.#isBroken) throw brokenSavepointError();
    this.#commitProgress.onSent();
  }

  async #commitOnce(isSavepoint: boolean): Promise<void> {
    // On SQLite, another transaction may begin before the subscribers have returned.
    const progress = this.#commitProgress;
    try {
      await this.#commit();
    } catch (error) {
      // TypeORM treats the transaction as active until COMMIT has succeeded.
      const isOver = !this.#runner.isTransactionActive || this.#commitProgress !== progress;
      if (!isSavepoint && isOver) progress.onCommitted();
      else if (!isSavepoint && !this.#onlyConnection) progress.onFailed(error);
      throw error;
    }
  }

  async #rollBack(depth: number, end: TransactionEnd): Promise<void> {
    const runner = this.#runner;
    try {
      const wasRolledBack = await rollBackOnce(runner, this.#rollback, () => !end.hasTakenEffect);
      this.#commitProgress.onRollbackAnswered();
      // SQLite has rolled back the whole transaction, not only the nested one.
      if (wasRolledBack && depth > 1) this.#isBroken = true;
    } catch (error) {
      if (end.hasTakenEffect) throw error;
      if (await correctRollback(runner, depth)) this.#isBroken = true;
      throw error;
    }
  }
}
