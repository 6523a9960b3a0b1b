import type { EntityManager, EntityMetadata, ObjectLiteral } from 'typeorm';
import { systemClock } from '../../../core/clock.js';
import { delay } from '../../../core/real-timers.js';
import { backoffMs } from '../connections/session.js';
import { driverErrorOf } from '../dialects/dialect.js';
import { UNCACHED } from './database.js';
import { retryOnConflict } from './transactions/conflict-retry.js';

/** After how long a read of the claimed row is not repeated. */
const MAX_BUSY_MS = 8_000;

/** Ways to read the row. The first that finds it is the right one. */
const WAYS = [
  {},
  // TypeORM reads an eager relation that must not be NULL by an INNER JOIN, which finds nothing if the related row is missing.
  { relationLoadStrategy: 'query' },
  // The claim has deleted the row softly. Not first, because related rows that are deleted softly come along.
  { withDeleted: true },
  { withDeleted: true, relationLoadStrategy: 'query' },
] as const;

/** Reads the row after its claim, with the eager relations that `find()` reads. Resolves to `null` if it was deleted since. */
export function readClaimed<Entity extends ObjectLiteral>(
  manager: EntityManager,
  metadata: EntityMetadata,
  id: ObjectLiteral,
): Promise<Entity | null> {
  const target = metadata.target as new () => Entity;
  const read = async (): Promise<Entity | null> => {
    for (const way of WAYS) {
      const query = manager.createQueryBuilder<Entity>(target, 'claimed');
      const row = await query
        .setFindOptions({ ...UNCACHED, ...way })
        .andWhere(id)
        .getOne();
      if (row) return row;
    }
    return null;
  };
  return retryWhileBusy(() => retryOnConflict(manager, read));
}

/**
 * If another process has locked the file of SQLite meanwhile, an error would give the row to nobody. Limited, because the driver
 * itself blocks the event loop for its `timeout` at each attempt.
 */
async function retryWhileBusy<T>(read: () => Promise<T>): Promise<T> {
  const endsAtMs = systemClock.monotonicMs() + MAX_BUSY_MS;
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await read();
    } catch (cause) {
      const isBusy = driverErrorOf(cause).code.startsWith('SQLITE_BUSY');
      if (!isBusy || systemClock.monotonicMs() > endsAtMs) throw cause;
      await delay(backoffMs(attempt));
    }
  }
}
