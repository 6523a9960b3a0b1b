import type { Timeout } from '../connections/session.js';

/**
 * A statement reads the database's clock when it begins, and may then wait for rows. If that took as long as the token memory,
 * another process may have used a key meanwhile, and its row may be gone. The fencing token would then be smaller than the
 * one of that process. The rest of the token memory is for clocks of different speed.
 */
const SURE_PART_OF_MEMORY = 0.9;

/** Whether a grant came so late that its result is unknown. `timeout`: of its request. */
export const isLateGrant = (timeout: Timeout, tokenMemoryMs: number): boolean =>
  timeout.passedMs >= tokenMemoryMs * SURE_PART_OF_MEMORY;

export const lateGrantError = () =>
  new Error(
    'the database granted the lock so late that a newer fencing token may be forgotten: see tokenMemoryMs',
  );
