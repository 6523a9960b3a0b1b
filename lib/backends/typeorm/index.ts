export {
  CreateDistributedLock1700000000000,
  type DistributedLockEntityOptions,
  distributedLockEntity,
  distributedLockMigration,
} from './entity-and-migration.js';
export type { SupportedType, TypeormBackendOptions } from './typeorm-options.js';
export { TypeormBackend, typeormBackend } from './typeorm-backend.js';
export { type RowClaim, claimRow } from './rows/claim-row.js';
export type { Database } from './rows/database.js';
export { fencedFindOne } from './rows/fenced-find-one.js';
export { type RowValues, fencedUpdate } from './rows/fenced-update.js';
export type { FencedTable } from './rows/fenced-rows.js';
export { FencingToken, type FencingTokenOptions } from './rows/fencing-token.js';
export {
  type LockedTransactionOptions,
  withLockedTransaction,
} from './rows/transactions/with-locked-transaction.js';
export { type OptimisticUpdateOptions, optimisticUpdate } from './rows/optimistic-update.js';
export { withRowLock } from './rows/row-lock.js';
export type { RowLockOptions } from './rows/row-lock-options.js';
export { type TransactionLockOptions, transactionLock } from './rows/transaction-lock.js';
export type { Fence } from '../../core/fence.js';
