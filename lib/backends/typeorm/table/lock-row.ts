import type { AcquireRequest, LockRecord, Taken, TickState } from '../../../core/backend.js';

/** The outcome of an attempt to grant: the fencing token, or the row that prevented the grant; `undefined` after a race. */
export type GrantOutcome =
  { readonly fencingToken: bigint } | { readonly snapshot: LockRowSnapshot } | undefined;

/** The row of a key, with the database time at which it was read. `row` is missing if the key has none yet. */
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
  /** How often the newest tick was granted; 0 once a run of it has ended. */
  readonly attempt: number;
}

/** The columns as every dialect selects them. Numbers come as text, so that no driver rounds them. */
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

/** Times in µs since 1970 are safe integers until the year 2255. A fencing token may be larger, so it is a bigint. */
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

/** Drivers return binary columns as bytes. */
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

/** Whether this holder holds the key, according to the row. */
export const isHeldBy = (holder: string, { nowUs, row }: LockRowSnapshot): boolean =>
  row !== undefined && row.expiresAtUs > nowUs && row.holder === holder;

/** The `taken` result if the row shows another holder; `undefined` if, according to the row, the key could be granted. */
export function takenResultFrom({ holder }: AcquireRequest, snapshot: LockRowSnapshot): Taken | undefined {
  const { nowUs, row } = snapshot;
  if (row === undefined || row.expiresAtUs <= nowUs || isHeldBy(holder, snapshot)) return undefined;
  return { kind: 'taken', remainingMs: (row.expiresAtUs - nowUs) / 1_000 };
}

export function tickStateFrom({ nowUs, row }: LockRowSnapshot): TickState {
  const untilMs = (row?.expiresAtUs ?? 0) / 1_000;
  const nowMs = nowUs / 1_000;
  const claimed = row && row.tickMs !== null ? { tickMs: row.tickMs, attempt: row.attempt } : undefined;
  // After a release `acquiredAtUs` is the time of the release.
  const aliveUntilMs = Math.max(untilMs, (row?.acquiredAtUs ?? 0) / 1_000);
  return { nowMs, claimed, heldForMs: untilMs - nowMs, aliveUntilMs };
}
