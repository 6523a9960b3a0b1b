import type { AcquireRequest, AcquisitionId } from '../../../core/backend.js';
import type { ReleaseResult, Taken } from '../../../core/backend-results.js';
import type { LockRecord } from '../../../core/lock-record.js';
import { PAUSED_ATTEMPT, type TickState } from '../../../core/tick.js';

/** The row of a key, with the database time at which it was read. `row` is missing if the key has none yet. */
export interface LockRowSnapshot {
  readonly nowUs: number;
  readonly row?: LockRow;
  /** Whether the server says that it accepts no writes, of users without a special privilege. MySQL and MariaDB only. */
  readonly isReadOnly?: boolean;
}

export interface LockRow {
  readonly holder: string;
  readonly instance: string;
  readonly fencingToken: bigint;
  readonly expiresAtUs: number;
  readonly acquiredAtUs: number;
  readonly tickMs: number | null;
  /** How often the newest tick was granted; 0 once a run of it has ended. `PAUSED_ATTEMPT` more while the key is paused. */
  readonly attempt: number;
}

/** The columns as every dialect selects them. Numbers that a driver could round come as text. */
export interface LockRowColumns {
  readonly store_time: Value;
  readonly holder: Value | null;
  readonly instance: Value | null;
  readonly version: Value | null;
  readonly expires_at: Value | null;
  readonly acquired_at: Value | null;
  readonly tick: Value | null;
  readonly attempt: Value | null;
  readonly read_only?: Value;
}

/** Drivers return binary columns as bytes. */
export type Text = string | Buffer;
type Value = Text | number;

/** Times in µs since 1970 are safe integers until the year 2255. A fencing token may be larger, so it is a bigint. */
export function snapshotFrom(columns: LockRowColumns): LockRowSnapshot {
  const nowUs = Number(textFrom(columns.store_time));
  const server = { nowUs, isReadOnly: Number(columns.read_only ?? 0) > 0 };
  if (columns.version === null) return server;
  return {
    ...server,
    row: {
      holder: textFrom(columns.holder),
      instance: textFrom(columns.instance),
      fencingToken: BigInt(textFrom(columns.version)),
      expiresAtUs: Number(textFrom(columns.expires_at)),
      acquiredAtUs: Number(textFrom(columns.acquired_at)),
      tickMs: columns.tick === null ? null : Number(textFrom(columns.tick)),
      attempt: Number(textFrom(columns.attempt)),
    },
  };
}

export const textFrom = (value: Value | null): string =>
  Buffer.isBuffer(value) ? value.toString('utf8') : String(value ?? '');

export function recordFrom({ nowUs, row }: LockRowSnapshot): LockRecord | null {
  if (!row || row.expiresAtUs <= nowUs) return null;
  const { holder, instance, fencingToken, acquiredAtUs, expiresAtUs } = row;
  return {
    holder,
    instance,
    fencingToken,
    sinceMs: Math.floor(acquiredAtUs / 1_000),
    remainingMs: (expiresAtUs - nowUs) / 1_000,
  };
}

/** `hasWaiters` is missing if the statement has released no row. */
export function releaseResultFrom(hasWaiters: boolean | undefined): ReleaseResult {
  if (hasWaiters === undefined) return { kind: 'gone' };
  return hasWaiters ? { kind: 'released', hasWaiters } : { kind: 'released' };
}

/** Whether this holder holds the key, according to the row. */
export const isHeldBy = (holder: string, { nowUs, row }: LockRowSnapshot): boolean =>
  row !== undefined && row.expiresAtUs > nowUs && row.holder === holder;

/** The result of a refused acquisition; `undefined` if, according to the row, the key could be granted. */
export function takenResultFrom({ holder }: AcquisitionId, snapshot: LockRowSnapshot): Taken | undefined {
  const { nowUs, row } = snapshot;
  if (row === undefined || row.expiresAtUs <= nowUs || isHeldBy(holder, snapshot)) return undefined;
  return { kind: 'taken', remainingMs: (row.expiresAtUs - nowUs) / 1_000 };
}

export function tickStateFrom({ nowUs, row }: LockRowSnapshot): TickState {
  const untilMs = (row?.expiresAtUs ?? 0) / 1_000;
  const nowMs = nowUs / 1_000;
  const attempt = (row?.attempt ?? 0) % PAUSED_ATTEMPT;
  const claimed = row && row.tickMs !== null ? { tickMs: row.tickMs, attempt } : undefined;
  // A person has removed the tick, and with it the pause: a row without a tick is cleaned up.
  const isPaused = claimed !== undefined && row !== undefined && row.attempt >= PAUSED_ATTEMPT;
  // After a release `acquiredAtUs` is the time of the release.
  const aliveUntilMs = Math.max(untilMs, (row?.acquiredAtUs ?? 0) / 1_000);
  return { nowMs, claimed, heldForMs: untilMs - nowMs, aliveUntilMs, ...(isPaused && { isPaused }) };
}

/** The shortest column of all dialects. The name is for people to read, so cutting its end does no harm. */
const MAX_INSTANCE_LENGTH = 255;

/** The year 2255. */
export const MAX_TIME_US = 9e15;

/** An acquisition in the units of the table. */
export type RequestRow = ReturnType<typeof toRequestRow>;

/** `notAfterUs`: the key may be granted until this moment of the database's clock. */
export const toRequestRow = (
  { key, holder, instance, leaseMs, tokenCount = 1, retryWithinMs }: AcquireRequest,
  notAfterUs: number,
) => ({
  key,
  holder,
  instance: instance.slice(0, MAX_INSTANCE_LENGTH).toWellFormed(),
  leaseUs: microseconds(leaseMs),
  tokenCount,
  /** `null` if the caller does not wait. */
  retryWithinUs: retryWithinMs === undefined ? null : microseconds(retryWithinMs),
  latestUs: Math.min(MAX_TIME_US, notAfterUs),
});

/** A whole number within the range of BIGINT, also for `Infinity`. */
export const microseconds = (ms: number) =>
  Math.max(-MAX_TIME_US, Math.min(Math.round(ms * 1_000), MAX_TIME_US));
