import type { AcquireRequest, LockRecord, Taken, TickClaim } from '../../../core/backend.js';
import { type TickVerdict, judgeTick } from '../../../core/tick-verdict.js';

/** What a statement that grants brings back: the fencing token, or else the row as it stood; or neither, after a race. */
export type GrantOutcome =
  { readonly fencingToken: bigint } | { readonly snapshot: LockRowSnapshot } | undefined;

/** The row of a key at a moment of the database's clock; without `row` where there is none yet. */
export interface LockRowSnapshot {
  readonly nowUs: number;
  readonly row?: LockRow;
}

export interface LockRow {
  readonly holder: string;
  readonly instance: string;
  readonly fencingToken: bigint;
  readonly expiresAtUs: number;
  readonly acquiredAtUs: number;
  readonly tickMs: number | null;
  /** Of its newest tick; 0 once a run of it has ended. */
  readonly attempt: number;
}

/** The names under which every dialect selects the columns; numbers as text, which no driver rounds. */
export interface LockRowColumns {
  readonly store_time: Text;
  readonly holder: Text | null;
  readonly instance: Text | null;
  readonly version: Text | null;
  readonly expires_at: Text | null;
  readonly acquired_at: Text | null;
  readonly tick: Text | null;
  readonly attempt: Text | null;
}

type Text = string | Buffer;

/** µs since 1970 are safe integers until the year 2255; a fencing token may be any number. */
export function snapshotFrom(columns: LockRowColumns): LockRowSnapshot {
  const nowUs = Number(textFrom(columns.store_time));
  if (columns.version === null) return { nowUs };
  return {
    nowUs,
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

/** Binary columns come as bytes. */
export const textFrom = (value: Text | null): string =>
  Buffer.isBuffer(value) ? value.toString('utf8') : (value ?? '');

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

/** Whether the row says that this holder has the key. */
export const isHeldBy = (holder: string, { nowUs, row }: LockRowSnapshot): boolean =>
  row !== undefined && row.expiresAtUs > nowUs && row.holder === holder;

/** Why the row does not let the key be granted; `undefined` if, as far as it tells, it could be. */
export function takenResultFrom({ holder }: AcquireRequest, snapshot: LockRowSnapshot): Taken | undefined {
  const { nowUs, row } = snapshot;
  if (row === undefined || row.expiresAtUs <= nowUs || isHeldBy(holder, snapshot)) return undefined;
  return { kind: 'taken', remainingMs: (row.expiresAtUs - nowUs) / 1_000 };
}

/** What the row says to a claim of somebody who does not hold the key. */
export function tickVerdictFrom(tick: TickClaim, { nowUs, row }: LockRowSnapshot): TickVerdict {
  const untilMs = (row?.expiresAtUs ?? 0) / 1_000;
  const nowMs = nowUs / 1_000;
  const claimed = row && row.tickMs !== null ? { tickMs: row.tickMs, attempt: row.attempt } : undefined;
  // A release leaves its time.
  const aliveUntilMs = Math.max(untilMs, (row?.acquiredAtUs ?? 0) / 1_000);
  return judgeTick(tick, { claimed, heldForMs: untilMs - nowMs, aliveUntilMs, nowMs });
}
