import type { AcquireRequest } from '../../core/backend.js';

/** An acquisition in the units of the table. */
export interface Asked {
  readonly instance: string;
  readonly leaseUs: number;
  readonly tokenCount: number;
  /** `null` for who does not wait. */
  readonly againUs: number | null;
  /** The key may be granted until this moment of the database's clock. */
  readonly latestUs: number;
}

/** As much as every dialect's column holds. It is for people to read, so a cut end does no harm. */
const LONGEST_INSTANCE = 255;

/** The year 2255. */
export const FARTHEST_US = 9e15;

export function askedOf(
  { instance, leaseMs, tokenCount = 1, againWithinMs }: AcquireRequest,
  notAfterUs: number,
): Asked {
  return {
    instance: instance.slice(0, LONGEST_INSTANCE).toWellFormed(),
    leaseUs: microseconds(leaseMs),
    tokenCount,
    againUs: againWithinMs === undefined ? null : microseconds(againWithinMs),
    latestUs: Math.min(FARTHEST_US, notAfterUs),
  };
}

/** Whole, and within what a BIGINT holds, also for `Infinity`. */
export const microseconds = (ms: number) =>
  Math.max(-FARTHEST_US, Math.min(Math.round(ms * 1_000), FARTHEST_US));
