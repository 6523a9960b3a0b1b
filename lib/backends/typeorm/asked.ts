import type { AcquireRequest, RenewRequest } from '../../core/backend.js';

/** An acquisition in the units of the table. */
export interface Asked {
  readonly instance: string;
  readonly leaseUs: number;
  readonly tickMs: number | null;
  /** The tick may be claimed between these two moments of the database's clock; they mean nothing without a tick. */
  readonly earliestUs: number;
  readonly latestUs: number;
}

/** As much as every dialect's column holds. It is for people to read, so a cut end does no harm. */
const LONGEST_INSTANCE = 255;

export function askedOf({ instance, leaseMs, tick }: AcquireRequest): Asked {
  return {
    instance: instance.slice(0, LONGEST_INSTANCE).toWellFormed(),
    leaseUs: microseconds(leaseMs),
    tickMs: tick ? tick.tickMs : null,
    earliestUs: tick ? microseconds(tick.tickMs - tick.maxEarlyMs) : 0,
    latestUs: tick ? microseconds(tick.tickMs + tick.staleAfterMs) : 0,
  };
}

export const leaseUsOf = ({ leaseMs }: RenewRequest) => microseconds(leaseMs);

/** Whole, and within what a BIGINT holds, also for `Infinity`. */
const microseconds = (ms: number) => Math.max(-FARTHEST_US, Math.min(Math.round(ms * 1_000), FARTHEST_US));

/** The year 2255. */
const FARTHEST_US = 9e15;
