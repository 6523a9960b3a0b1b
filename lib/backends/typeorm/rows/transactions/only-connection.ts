import type { DataSource, QueryRunner } from 'typeorm';
import { systemClock } from '../../../../core/clock.js';
import { LockConfigError, LockTimeoutError } from '../../../../core/errors.js';
import { delay, nextTurn } from '../../../../core/real-timers.js';
import { withTimeout } from '../../../../core/requests/store-timeout.js';
import { dataSourceOf } from '../database.js';
import { isIdle, isRunningExclusive, runExclusive } from './exclusive-runs.js';
import { correctState, hasBegun, hasRolledBack } from './transaction-state-correction.js';

/** Limited, because a caller that waits for the connection may itself be part of the transaction that occupies it. */
const MAX_WAIT_MS = 10_000;
const POLL_MS = 2;

/** Begins a transaction unless `mayBegin` returns false at that moment. Resolves to whether it did. */
export type Begin = (mayBegin: () => boolean) => Promise<boolean>;

interface TransactionStart {
  readonly begin: Begin;
  /** Whether the caller is part of a step that occupies the query runner. */
  isWithinStep(): boolean;
}

/** The only connection of an SQLite data source, and thus its only query runner: who may use it. */
export class OnlyConnection {
  readonly #runner: QueryRunner;
  /** Whether no step of a transaction or helper occupies the query runner. */
  readonly #hasNoStep: () => boolean;
  #isInUse = false;
  #nestedUses = 0;
  /** How many transactions were just rejected. TypeORM is about to roll back each of them. */
  #pendingRollbacks = 0;

  constructor(runner: QueryRunner, hasNoStep: () => boolean) {
    this.#runner = runner;
    this.#hasNoStep = hasNoStep;
  }

  /**
   * Whether other work uses the connection. TypeORM also rolls back a transaction that could not begin, and on the only
   * connection that would roll back the other work's transaction.
   */
  get isUsedByOthers(): boolean {
    return this.#isInUse && !isRunningExclusive(this);
  }

  /** Whether this asynchronous context has opened the transaction that is open on the connection. */
  get isInOwnTransaction(): boolean {
    return isRunningExclusive(this) && hasBegun(this.#runner);
  }

  /**
   * Does the work while no other transaction is open on the connection. A transaction that would begin meanwhile waits for the
   * end of the work, in one queue with other such work. The work may call `leave` when it needs the connection no longer.
   *
   * @throws LockTimeoutError if the connection is not free after `waitMs`, or 10 000 ms if that is less
   * @throws LockConfigError if the data source was closed meanwhile: its new connection has another query runner
   */
  async whenFree<T>(work: (leave: () => void) => Promise<T>, waitMs = MAX_WAIT_MS): Promise<T> {
    if (isRunningExclusive(this)) return this.#withinUse(work);
    const startedAtMs = systemClock.monotonicMs();
    const limitMs = Math.min(waitMs, MAX_WAIT_MS);
    const leftMs = () => startedAtMs + limitMs - systemClock.monotonicMs();
    const waitForTurn = async (previous: Promise<void>) => {
      if (!(await withTimeout(systemClock, leftMs(), previous, { awaited: true })))
        throw connectionBusyError(limitMs);
    };
    const workWhenFree = async (end: () => void) => {
      // A transaction that would begin from now on waits until this run has ended.
      while (this.#runner.isTransactionActive) {
        if (leftMs() <= 0) await this.#throwUnlessEnded(limitMs);
        else await delay(POLL_MS);
      }
      if (dataSourceOf(this.#runner).createQueryRunner() !== this.#runner) throw connectionClosedError();
      // Set in the same turn in which the connection was found free.
      this.#isInUse = true;
      let left: Promise<void> | undefined;
      const leave = () => (left ??= this.#leave(end));
      try {
        return await work(() => void leave());
      } finally {
        await leave();
      }
    };
    return runExclusive(this, workWhenFree, waitForTurn);
  }

  /**
   * Begins a transaction at once, as TypeORM alone does, if no locked work and no helper has the connection or waits for it.
   * Otherwise the transaction waits, and the next one that waits begins after its end. If they began together, TypeORM would
   * merge them.
   *
   * @throws LockTimeoutError if locked work still uses the connection after 10 000 ms
   */
  async begin(start: TransactionStart): Promise<void> {
    const isFree = () => isIdle(this) && this.#hasNoStep();
    // Part of the open transaction, or of another request: TypeORM makes it a savepoint in both cases, and they look the same.
    const isSavepoint = () => hasBegun(this.#runner) && !this.#isInUse;
    const beginsAtOnce = isRunningExclusive(this) || start.isWithinStep() || isFree();
    // A subscriber may have begun it without awaiting it, so the work that it is part of may have ended by then.
    if (beginsAtOnce && (await start.begin(() => !this.isUsedByOthers))) return;
    if (isSavepoint() && (await start.begin(isSavepoint))) return;
    await this.#beginInTurn(start);
  }

  /** A subscriber may begin the work without awaiting it. The connection stays in use until it has ended. */
  async #withinUse<T>(work: (leave: () => void) => Promise<T>): Promise<T> {
    this.#nestedUses += 1;
    try {
      return await work(() => undefined);
    } finally {
      this.#nestedUses -= 1;
    }
  }

  async #leave(end: () => void): Promise<void> {
    while (this.#nestedUses > 0) await delay(POLL_MS);
    // The rollback of a rejected transaction must still find the connection in use.
    while (this.#pendingRollbacks > 0) await nextTurn();
    this.#isInUse = false;
    end();
  }

  /**
   * TypeORM treats a transaction as active though its BEGIN has failed, or though SQLite has rolled it back. The guard corrects that
   * only from the first helper on.
   */
  async #throwUnlessEnded(limitMs: number): Promise<void> {
    const isOpen = hasBegun(this.#runner) && !(await hasRolledBack(this.#runner));
    if (isOpen || !this.#hasNoStep()) throw connectionBusyError(limitMs);
    correctState(this.#runner, { isTransactionActive: false, transactionDepth: 0 });
  }

  /** Resolves when the transaction has begun. The next one that waits for its turn begins after the end of this one. */
  #beginInTurn(start: TransactionStart): Promise<void> {
    const endsAtMs = systemClock.monotonicMs() + MAX_WAIT_MS;
    const waitForTurn = async (previous: Promise<void>) => {
      const isTurn = await withTimeout(systemClock, MAX_WAIT_MS, previous, { awaited: true });
      // If the connection is not in use, a rejected transaction would be rolled back by TypeORM, and with it the open one. So it
      // begins as a savepoint of the open one, as in TypeORM alone.
      if (!isTurn && this.#isInUse) throw this.#refuseTransaction();
    };
    return new Promise((resolve, reject) => {
      const runTransaction = async () => {
        while (this.#runner.isTransactionActive && systemClock.monotonicMs() < endsAtMs) await delay(POLL_MS);
        if (!(await start.begin(() => !this.#isInUse))) throw this.#refuseTransaction();
        resolve();
      };
      runExclusive(this, runTransaction, waitForTurn).catch(reject);
    });
  }

  #refuseTransaction(): LockTimeoutError {
    this.#pendingRollbacks += 1;
    void nextTurn().then(() => (this.#pendingRollbacks -= 1));
    return connectionBusyError(MAX_WAIT_MS);
  }
}

const connectionBusyError = (waitMs: number) =>
  new LockTimeoutError(
    `Expected the only connection of the data source to be free, but another transaction still had it after ` +
      `${waitMs} ms. Inside of a transaction use its manager, and make transactions shorter.`,
  );

const connectionClosedError = () =>
  new LockConfigError(
    `Expected the data source to stay open while a transaction or helper waited for its only connection, but it was closed.`,
  );

interface TransactionRequest {
  /** What the transaction is for, as messages say it: `lock "k"`. */
  readonly name: string;
  readonly key?: string;
  readonly waitMs: number;
  readonly signal?: AbortSignal | undefined;
  /** Whether it would begin within the open transaction, as a savepoint of it, and then wait for it. */
  readonly isNested: boolean;
}

/**
 * Runs the locked transactions of a data source one after the other. For data sources with a single connection.
 *
 * @throws LockTimeoutError if others still use the connection after `waitMs`
 * @throws LockConfigError if the transaction would wait for itself
 * @throws the reason of the signal if it aborts
 */
export async function runQueuedTransaction<T>(
  dataSource: DataSource,
  request: TransactionRequest,
  work: () => Promise<T>,
): Promise<T> {
  if (request.isNested || isRunningExclusive(dataSource)) throw nestedTransactionError(request);
  return runExclusive(dataSource, work, (previous) => waitForPrevious(previous, request));
}

async function waitForPrevious(previous: Promise<void>, request: TransactionRequest): Promise<void> {
  const { waitMs, signal } = request;
  signal?.throwIfAborted();
  let abort = (): void => undefined;
  const aborted = new Promise<never>((_, reject) => (abort = () => reject(signal?.reason as Error)));
  signal?.addEventListener('abort', abort);
  try {
    const ended = Promise.race([previous, aborted]);
    if (waitMs === Infinity) await ended;
    else if (!(await withTimeout(systemClock, waitMs, ended, { awaited: true })))
      throw queueBusyError(request);
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}

const queueBusyError = ({ name, key, waitMs }: TransactionRequest) =>
  new LockTimeoutError(
    `Expected the connection of the data source to be free for the transaction of ${name}, but other locked ` +
      `transactions still used it after ${waitMs} ms. Raise waitMs, or make the transactions shorter.`,
    { ...(key !== undefined && { key }) },
  );

const nestedTransactionError = ({ name, key }: TransactionRequest) =>
  new LockConfigError(
    `Expected no open transaction of the data source, got that of ${name} inside of another one: on a single connection it ` +
      `would wait for itself. Use the manager of the outer one, under locks.withLock() if it needs a second lock.`,
    { ...(key !== undefined && { key }) },
  );
