import type { ErrorKind } from '../dialect.js';
import { driverErrorOf } from '../driver-error.js';

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
