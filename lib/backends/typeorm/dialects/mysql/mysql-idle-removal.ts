import { microseconds } from '../../table/lock-row.js';
import { type Statements, driverErrorOf } from '../dialect.js';
import { bytes, padToBucketSize } from './mysql-keys.js';
import { type RunStatement, SYNTAX_ERROR } from './statement-types.js';

const LOCK_TIMEOUT = '1205';

/** The removal leaves out rows that other transactions have locked. It never waits for one. */
export function idleRemoval(run: RunStatement): Pick<Statements, 'removeIdle'> {
  let canSkipLocked = true;
  return {
    async removeIdle(session, keys, memoryMs) {
      const remove = (name: 'removeIdle' | 'removeIdleUnlocked', group: readonly string[]) => {
        const padded = padToBucketSize(group.map(bytes));
        return run(session, name, padded.length, [microseconds(memoryMs), ...padded]);
      };
      /** In halves, until a locked row is alone. */
      const removeUnlocked = async (group: readonly string[]): Promise<void> => {
        try {
          await remove('removeIdleUnlocked', group);
        } catch (cause) {
          if (driverErrorOf(cause).code !== LOCK_TIMEOUT) throw cause;
          if (group.length === 1) return;
          const middle = Math.ceil(group.length / 2);
          await removeUnlocked(group.slice(0, middle));
          await removeUnlocked(group.slice(middle));
        }
      };
      if (!canSkipLocked) return removeUnlocked(keys);
      try {
        await remove('removeIdle', keys);
      } catch (cause) {
        if (driverErrorOf(cause).code !== SYNTAX_ERROR) throw cause;
        canSkipLocked = false;
        await removeUnlocked(keys);
      }
    },
  };
}
