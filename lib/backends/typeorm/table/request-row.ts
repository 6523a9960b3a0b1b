import type { AcquireRequest } from '../../../core/backend.js';

/** An acquisition in the units of the table. */
export interface RequestRow {
  readonly instance: string;
  readonly leaseUs: number;
  readonly tokenCount: number;
  /** `null` if the caller does not wait. */
  readonly retryWithinUs: number | null;
  /** The key may be granted until this moment of the database's clock. */
  readonly latestUs: number;
}

/** The shortest column of all dialects. The name is for people to read, so cutting its end does no harm. */
const MAX_INSTANCE_LENGTH = 255;

/** The year 2255. */
export const MAX_TIME_US = 9e15;

export function toRequestRow(
  { instance, leaseMs, tokenCount = 1, retryWithinMs }: AcquireRequest,
  notAfterUs: number,
): RequestRow {
  return {
    instance: instance.slice(0, MAX_INSTANCE_LENGTH).toWellFormed(),
    leaseUs: microseconds(leaseMs),
    tokenCount,
    retryWithinUs: retryWithinMs === undefined ? null : microseconds(retryWithinMs),
    latestUs: Math.min(MAX_TIME_US, notAfterUs),
  };
}

/** A whole number within the range of BIGINT, also for `Infinity`. */
export const microseconds = (ms: number) =>
  Math.max(-MAX_TIME_US, Math.min(Math.round(ms * 1_000), MAX_TIME_US));
