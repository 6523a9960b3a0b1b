import { LockConfigError } from '../../../../core/errors.js';

export const brokenSavepointError = () =>
  new LockConfigError(
    `Expected to commit a transaction, but a nested one in it failed and could not be rolled back. All of it is rolled back.`,
  );

export const noNestedTransactionError = () =>
  new LockConfigError(
    `Expected a nested transaction to commit or to roll back, but none is open: it could not begin. withLockedTransaction() ` +
      `ends its own one when the work has ended.`,
  );

export const neverBegunError = () =>
  new LockConfigError(
    `Expected a transaction to commit or to roll back, but it never began: another one has the only connection of the data source.`,
  );

export const endedByOtherError = () =>
  new LockConfigError(
    `Expected an open transaction to commit or to roll back, but another query runner of the same connection has ended it.`,
  );

export const transactionEndedError = () =>
  new LockConfigError(
    `Expected the transaction to be open until its fenced reads and writes have ended, but it ended before one of them began. ` +
      `Await each of them in the transaction.`,
  );
