import type { AcquireRequest, LockRecord, Taken, TickRefused } from '../../core/backend.js';
import { tickRefusal } from '../../core/tick-refusal.js';

/** What a statement that grants brings back: the fencing token, or else the row as it stood; or neither, after a race. */
export type Granting = { readonly fencingToken: bigint } | { readonly seen: Seen } | undefined;

/** The row of a key at a moment of the database's clock; without `row` where there is none yet. */
export interface Seen {
  readonly nowUs: number;
  readonly row?: {
    readonly holder: string;
    readonly instance: string;
    readonly fencingToken: bigint;
    readonly expiresAtUs: number;
    readonly acquiredAtUs: number;
    readonly tickMs: number | null;
  };
}

/** The names under which every dialect selects the columns; numbers as text, which no driver rounds. */
export interface SeenColumns {
  readonly store_time: Text;
  readonly holder: Text | null;
  readonly instance: Text | null;
  readonly version: Text | null;
  readonly expires_at: Text | null;
  readonly acquired_at: Text | null;
  readonly tick: Text | null;
}

type Text = string | Buffer;

/** µs since 1970 are safe integers until the year 2255; a fencing token may be any number. */
export function seenFrom(columns: SeenColumns): Seen {
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
    },
  };
}

/** Binary columns come as bytes. */
export const textFrom = (value: Text | null): string =>
  Buffer.isBuffer(value) ? value.toString('utf8') : (value ?? '');

export function recordFrom({ nowUs, row }: Seen): LockRecord | null {
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

/** Why the row does not let the key be granted; `undefined` if, as far as it tells, it could be. */
export function refusal(
  { holder, tick }: AcquireRequest,
  { nowUs, row }: Seen,
): Taken | TickRefused | undefined {
  const isHeld = row !== undefined && row.expiresAtUs > nowUs;
  if (isHeld && row.holder === holder) return undefined;
  const refused = tick && tickRefusal(tick, { claimedMs: row?.tickMs ?? undefined, nowMs: nowUs / 1_000 });
  if (refused) return refused;
  return isHeld ? { kind: 'taken', remainingMs: (row.expiresAtUs - nowUs) / 1_000 } : undefined;
}
