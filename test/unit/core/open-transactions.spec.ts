import { expect, it } from 'vitest';
import type { LockHandle } from '../../../lib/core/leases/lock-handle.js';
import { BorrowedLock } from '../../../lib/core/leases/lock-views.js';
import {
  contextTransactionsNow,
  hasOpenTransaction,
  recordTransaction,
  runInTransactionContext,
  transactionsOf,
} from '../../../lib/core/open-transactions.js';

it('a source that cannot be read does not fail: the others are read', () => {
  const fail = () => {
    throw new Error('not connected');
  };
  const broken = Object.defineProperty({}, 'manager', { get: fail });
  const halfBroken = { manager: Object.defineProperty({}, 'queryRunner', { get: fail }) };
  expect(transactionsOf(new Set([broken, halfBroken]))).toEqual([]);
  const open = { manager: { queryRunner: { isTransactionActive: true } } };
  expect(transactionsOf(new Set([broken, open]))).toHaveLength(1);
});

it('transactions that have ended are not kept', () => {
  const lock = {};
  let looks = 0;
  const ended = {
    get isTransactionActive() {
      looks += 1;
      return false;
    },
  };
  recordTransaction(lock, ended);
  recordTransaction(lock, { isTransactionActive: true });
  looks = 0;
  expect(hasOpenTransaction(lock)).toBe(true);
  expect(looks).toBe(0);
});

it('a context keeps no transaction that has ended around it', () => {
  let looks = 0;
  const ended = {
    get isTransactionActive() {
      looks += 1;
      return false;
    },
  };
  const open = { isTransactionActive: true };
  const now = runInTransactionContext(ended, () =>
    runInTransactionContext(open, () => {
      looks = 0;
      return contextTransactionsNow();
    }),
  );
  expect([now, looks]).toEqual([[open], 0]);
});

it('a transaction that is used under the lock of a run or a term counts for its lease', () => {
  const handle = {} as LockHandle;
  recordTransaction(new BorrowedLock(handle), { isTransactionActive: true });
  expect(hasOpenTransaction(handle)).toBe(true);
});
