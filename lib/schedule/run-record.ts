import { MAX_HISTORY_ENTRY_LENGTH } from '../core/backend.js';
import type { RunEndOutcome } from '../core/events.js';

/**
 * The outcome of a run. `interrupted`: it threw while the application was shutting down. `lost`: its lease was lost, so another
 * replica may have run at the same time. `timed-out`: it took longer than `maxRunMs`. `dead`: its replica died, or could not record the end of the run.
 */
export type CronRunOutcome = 'running' | RunEndOutcome | 'dead';

/** One run of a job, as its replica recorded it. As JSON, the fencing token is a text. */
export interface CronRunRecord {
  readonly tick: Date;
  readonly attempt: number;
  /** The instance that ran it, as named in its module's options. */
  readonly instance: string;
  readonly fencingToken: bigint;
  /** By the clock of that instance, as is {@link ended}. */
  readonly started: Date;
  readonly ended: Date | null;
  readonly outcome: CronRunOutcome;
  /** The message of the error that the run threw, cut after at most 150 characters. */
  readonly error: string | null;
}

const MAX_INSTANCE_LENGTH = 100;
const MAX_ERROR_LENGTH = 150;

/** Encodes a record as the text of at most `MAX_HISTORY_ENTRY_LENGTH` characters that the store keeps. */
export function encodeRecord(record: CronRunRecord): string {
  const { tick, attempt, fencingToken, started, ended, outcome, instance, error } = record;
  const fields = [
    Number(tick),
    attempt,
    String(fencingToken),
    Number(started),
    ended && Number(ended),
    outcome,
  ];
  const encode = (length: number) =>
    JSON.stringify([
      ...fields,
      instance.slice(0, length),
      error?.slice(0, length + MAX_ERROR_LENGTH - MAX_INSTANCE_LENGTH),
    ]);
  const text = encode(MAX_INSTANCE_LENGTH);
  // JSON escapes may make a text six times as long.
  return text.length <= MAX_HISTORY_ENTRY_LENGTH ? text : encode(MAX_INSTANCE_LENGTH / 10);
}

/** Returns `undefined` for a text that is no record of this library. */
function decodeRecord(text: string): CronRunRecord | undefined {
  try {
    const [tick, attempt, token, started, ended, outcome, instance, error] = JSON.parse(
      text,
    ) as EncodedFields;
    return {
      ...{ tick: new Date(tick), attempt, instance, fencingToken: BigInt(token), started: new Date(started) },
      ...{ ended: ended === null ? null : new Date(ended), outcome, error: error ?? null },
    };
  } catch {
    return undefined;
  }
}

type EncodedFields = [
  ...[tick: number, attempt: number, token: string, started: number, ended: number | null],
  ...[outcome: CronRunOutcome, instance: string, error: string | null | undefined],
];

/** Returns one record for each run, the newest first. The entry of a run's end replaces the entry of its start. */
export function decodeRecords(entries: readonly string[]): readonly CronRunRecord[] {
  const found = new Map<bigint, CronRunRecord>();
  for (const entry of entries) {
    const record = decodeRecord(entry);
    const other = record && found.get(record.fencingToken);
    if (record && (!other || other.ended === null)) found.set(record.fencingToken, record);
  }
  return [...found.values()].sort((one, other) => other.started.getTime() - one.started.getTime());
}
