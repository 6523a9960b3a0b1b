import { MAX_HISTORY_ENTRY_LENGTH } from '../core/backend.js';

/**
 * How a run went. `interrupted`: it threw as the application was shutting down. `lost`: it stopped being the only one.
 * `dead`: its replica died, or could not tell how it ended.
 */
export type CronRunOutcome = 'running' | 'completed' | 'failed' | 'interrupted' | 'lost' | 'dead';

/** One run of a job, as its replica told it. As JSON, the fencing token is a text. */
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
  /** The message of what it threw; a long one is cut. */
  readonly error: string | null;
}

const MAX_INSTANCE_LENGTH = 100;
const MAX_ERROR_LENGTH = 150;

/** In one line, as it is noted in the store. */
export function encodeRecord({
  tick,
  attempt,
  instance,
  fencingToken,
  started,
  ended,
  outcome,
  error,
}: CronRunRecord): string {
  const fields = [
    tick.getTime(),
    attempt,
    String(fencingToken),
    started.getTime(),
    ended?.getTime() ?? null,
    outcome,
  ];
  const encode = (length: number) =>
    JSON.stringify([
      ...fields,
      instance.slice(0, length),
      error?.slice(0, length + MAX_ERROR_LENGTH - MAX_INSTANCE_LENGTH),
    ]);
  const text = encode(MAX_INSTANCE_LENGTH);
  // What is escaped may be six times as long.
  return text.length <= MAX_HISTORY_ENTRY_LENGTH ? text : encode(MAX_INSTANCE_LENGTH / 10);
}

/** `undefined` for what is no note of ours. */
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

/** One record for each run, the newest first: the end of a run takes the place of its beginning. */
export function decodeRecords(entries: readonly string[]): readonly CronRunRecord[] {
  const found = new Map<bigint, CronRunRecord>();
  for (const entry of entries) {
    const record = decodeRecord(entry);
    const other = record && found.get(record.fencingToken);
    if (record && (!other || other.ended === null)) found.set(record.fencingToken, record);
  }
  return [...found.values()].sort((one, other) => other.started.getTime() - one.started.getTime());
}
