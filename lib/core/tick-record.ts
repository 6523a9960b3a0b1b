import { systemClock } from './clock.js';
import { type ClaimedTick, type TickState, resumedTick } from './tick.js';

/** What a store without a readable clock keeps about the ticks of a key, as JSON. Each change is a compare-and-set. */
export interface TickRecord extends ClaimedTick {
  /** The holder of the newest run, until it has ended. */
  readonly holder?: string;
  /** Until then the newest run was alive, by the clock of its process. */
  readonly aliveUntilMs: number;
  readonly isPaused?: true;
}

interface RecordedTicks {
  readonly record: TickRecord | undefined;
  /** The holder of the key, or the caller whose turn it is. */
  readonly oldest: { readonly value: { readonly isHeld?: true; readonly leaseMs: number } } | undefined;
}

/** The clock of this process counts. The rest of a lease is at most its length. */
export function tickStateOf({ record, oldest }: RecordedTicks): TickState {
  const nowMs = systemClock.wallMs();
  const heldForMs = oldest?.value.isHeld ? oldest.value.leaseMs : 0;
  return {
    nowMs,
    heldForMs,
    claimed: record && { tickMs: record.tickMs, attempt: record.attempt },
    aliveUntilMs: heldForMs > 0 ? nowMs + heldForMs : (record?.aliveUntilMs ?? 0),
    ...(record?.isPaused && { isPaused: true }),
  };
}

/** The record of a job that is paused or resumed; `undefined` if it is so already. */
export function pausedRecordOf(ticks: RecordedTicks, isPaused: boolean): TickRecord | undefined {
  const state = tickStateOf(ticks);
  if ((state.isPaused ?? false) === isPaused) return undefined;
  const { isPaused: _, ...rest } = ticks.record ?? { aliveUntilMs: 0 };
  const newest = isPaused && state.claimed ? state.claimed : resumedTick(state);
  return { ...rest, ...newest, ...(isPaused && { isPaused }) };
}

/** Whether the record may be deleted `afterMs` after its tick. The run of one without an end may have died later than that. */
export const isOutdated = ({ attempt, aliveUntilMs }: TickRecord, afterMs: number): boolean =>
  attempt === 0 || aliveUntilMs + afterMs < systemClock.wallMs();

export const encodeTickRecord = (record: TickRecord): Buffer => Buffer.from(JSON.stringify(record));
