import { MAX_HISTORY_ENTRY_LENGTH } from '../core/backend.js';
import type { RunEndOutcome } from '../core/events.js';
import type { JobLocks } from '../core/job-locks.js';

/**
 * The outcome of a run. `interrupted`: it threw while the application was shutting down. `lost`: its lease was lost, so another
 * replica may have run at the same time. `timed-out`: it took longer than `maxRunMs`. `dead`: its replica died, or could not record the end of the run.
 */
export type CronRunOutcome = 'running' | RunEndOutcome | 'dead';

/** One run of a job, as its replica recorded it. As JSON, the fencing token is a text. */
export interface CronRunRecord {
  readonly tick: Date;
  readonly attempt: number;
  /** Whether `CronRuns.runNow()` started it. Its `tick` is then the time of that call, not a planned time. */
  readonly isManual: boolean;
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

/** A record as the store has it. */
export interface StoredRun {
  readonly record: CronRunRecord;
  /** The deployment that it was the run of, if the job runs once for each. */
  readonly deployKey: string | undefined;
  /** The plan that had the tick: see {@link planIdOf}. Unknown in an entry of an earlier version of this library. */
  readonly planId: string | undefined;
}

/** The longest error text of a record. */
export const MAX_ERROR_LENGTH = 150;
/** How much of its two long texts a record keeps, if that fits. JSON escapes may make a text six times as long. */
const LENGTHS = [
  { maxInstance: 100, maxError: MAX_ERROR_LENGTH },
  { maxInstance: 10, maxError: 60 },
];
/** This always fits. */
const SHORTEST = { maxInstance: 10, maxError: 0 };

/** What the tick of a run comes from. */
export interface RunOrigin {
  readonly deployKey?: string | undefined;
  readonly planId?: string | undefined;
}

/** Encodes a record as the text of at most `MAX_HISTORY_ENTRY_LENGTH` characters that the store keeps. */
export function encodeRecord(record: CronRunRecord, { deployKey, planId }: RunOrigin = {}): string {
  const { tick, attempt, fencingToken, started, ended, outcome, instance, error, isManual } = record;
  const more = isManual ? [null, 1] : [deployKey ?? null, null, planId];
  const fields = [
    Number(tick),
    attempt,
    String(fencingToken),
    Number(started),
    ended && Number(ended),
    outcome,
  ];
  const encode = ({ maxInstance, maxError }: typeof SHORTEST) =>
    JSON.stringify([...fields, instance.slice(0, maxInstance), error?.slice(0, maxError), ...more]);
  const texts = LENGTHS.map(encode);
  return texts.find(({ length }) => length <= MAX_HISTORY_ENTRY_LENGTH) ?? encode(SHORTEST);
}

/** Returns `undefined` for a text that is no record of this library. */
function decodeRecord(text: string): StoredRun | undefined {
  try {
    const fields = JSON.parse(text) as EncodedFields;
    const [tick, attempt, token, started, ended, outcome, instance, error, ...more] = fields;
    const [deployKey, manual, planId] = more;
    if (![tick, started, ended ?? started].every(isTime)) return undefined;
    const record = {
      ...{ tick: new Date(tick), attempt, instance, fencingToken: BigInt(token), started: new Date(started) },
      ...{ ended: ended === null ? null : new Date(ended), outcome, error: error ?? null },
      isManual: manual === 1,
    };
    return { record, deployKey: deployKey ?? undefined, planId: planId ?? undefined };
  } catch {
    return undefined;
  }
}

const isTime = (ms: unknown) => typeof ms === 'number' && !Number.isNaN(new Date(ms).getTime());

type EncodedFields = [
  ...[tick: number, attempt: number, token: string, started: number, ended: number | null],
  ...[outcome: CronRunOutcome, instance: string, error: string | null | undefined],
  ...more: [deployKey?: string | null, manual?: 1 | null, planId?: string | null],
];

/**
 * Reads the last runs of a job on all replicas, the newest first.
 *
 * @throws LockUnavailableError if the store does not answer
 */
export const readRunHistory = async (jobs: JobLocks, jobKey: string): Promise<readonly StoredRun[]> =>
  decodeRecords(await jobs.readHistory(jobKey));

/** Runs of different ticks may have locks with different keys, and then the same fencing token. */
export const runIdOf = ({ fencingToken, tick }: CronRunRecord) => `${fencingToken} ${Number(tick)}`;

/** Returns one record for each run, the newest first. The entry of a run's end replaces the entry of its start. */
export function decodeRecords(entries: readonly string[]): readonly StoredRun[] {
  const found = new Map<string, StoredRun>();
  for (const entry of entries) {
    const run = decodeRecord(entry);
    if (!run) continue;
    const name = JSON.stringify([runIdOf(run.record), run.deployKey]);
    const other = found.get(name);
    if (!other || other.record.ended === null) found.set(name, run);
  }
  return [...found.values()].sort((one, other) => Number(other.record.started) - Number(one.record.started));
}
