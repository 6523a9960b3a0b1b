import { reasonOf } from '../../core/shown.js';

/** ioredis speaks of settings that are ours, not the user's. */
export function plainly(cause: unknown): unknown {
  const isLost = /^(Reached the max retries|Stream isn't writeable|Connection is closed)/.test(
    reasonOf(cause),
  );
  return isLost ? new Error('the connection to Redis was lost before it answered', { cause }) : cause;
}
