import type { EntityManager } from 'typeorm';
import { systemClock } from '../../../../core/clock.js';
import { dataSourceOf, isInProcess } from '../database.js';
import { type IsolationLevel, runCheckedTransaction } from './checked-transaction.js';
import { runQueuedTransaction } from './only-connection.js';
import { guardOf } from './runner-guard.js';

interface OwnTransaction {
  /** What the transaction is for, as messages say it. */
  readonly name: string;
  /** Unless it is the default. */
  readonly isolationLevel: IsolationLevel | undefined;
  /** How long to wait for SQLite's only connection. */
  readonly waitMs: number;
  /** Called if a subscriber has failed after COMMIT. Its error is thrown. */
  readonly onFailedAfterCommit: () => void;
}

/**
 * Runs the work in a transaction of its own, and commits. TypeORM takes a connection to the primary for it.
 *
 * @throws LockTimeoutError if others still use SQLite's only connection after `waitMs`
 * @throws LockConfigError if the database has rolled the transaction back after an error that the work caught
 */
export function runOwnTransaction<T>(
  owner: EntityManager,
  { name, isolationLevel, waitMs, onFailedAfterCommit }: OwnTransaction,
  work: (manager: EntityManager) => Promise<T>,
): Promise<T> {
  const run = () => runCheckedTransaction(owner, { name, isolationLevel, onFailedAfterCommit }, work);
  if (!isInProcess(owner)) return run();
  const dataSource = dataSourceOf(owner);
  const guard = guardOf(dataSource.createQueryRunner());
  const endsAtMs = systemClock.monotonicMs() + waitMs;
  return runQueuedTransaction(dataSource, { name, waitMs, isNested: guard.isInOwnTransaction }, () =>
    guard.runTransaction(run, Math.max(endsAtMs - systemClock.monotonicMs(), 0)),
  );
}
