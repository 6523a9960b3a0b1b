import { MAX_HISTORY_ENTRY_LENGTH } from '../core/backend.js';
import { LockLostError, LockShutdownError } from '../core/errors.js';
import { formatReason } from '../core/format.js';
import { withJson } from '../core/json.js';
import type { Lease } from '../core/leases/lease.js';
import type { Locks } from '../core/locks.js';
import type { CronRun, Job } from './job.js';

/**
 * The outcome of a run. `interrupted`: it threw while the application was shutting down. `lost`: its lease was lost, so another
 * replica may have run at the same time. `dead`: its replica died, or could not record the end of the run.
 */
export type CronRunOutcome = 'running' | 'completed' | 'failed' | 'interrupted' | 'lost' | 'dead';

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

export interface JobRun {
  readonly locks: Locks;
  readonly job: Job;
  readonly tickMs: number;
  readonly lease: Lease;
}

/** Runs the body of a job under its claimed lease, and records the start and the end of the run. */
export function runJob(
  { locks, job, tickMs, lease }: JobRun,
  body: (run: CronRun) => Promise<unknown>,
): Promise<unknown> {
  const { fencingToken, signal } = lease;
  const { attempt } = lease.grant;
  const run: CronRun = withJson({ tick: new Date(tickMs), attempt, fencingToken, signal });
  locks.events.emit('tick-claimed', { job: job.key, tick: run.tick, fencingToken, attempt });
  const recordEnd = recordStart(locks, job, run);
  return locks.runAndRelease(lease, async () => {
    try {
      const value = await body(run);
      lease.endRun();
      recordEnd(lease.isLost ? 'lost' : 'completed');
      return value;
    } catch (error) {
      const isInterrupted = signal.aborted && signal.reason instanceof LockShutdownError;
      if (!isInterrupted) lease.endRun();
      recordEnd(isInterrupted ? 'interrupted' : outcomeUnlessLost('failed', lease, error), error);
      throw error;
    }
  });
}

/** Returns the function that records the end. */
function recordStart(locks: Locks, job: Job, { tick, attempt, fencingToken }: CronRun) {
  const { clock, instance } = locks;
  const record = (text: CronRunRecord) => void locks.appendHistory(job.key, encodeRecord(text));
  const startRecord: CronRunRecord = {
    ...{ tick, attempt, instance, fencingToken, started: new Date(clock.wallMs()) },
    ...{ ended: null, outcome: 'running', error: null },
  };
  record(startRecord);
  return (outcome: CronRunOutcome, cause?: unknown): void => {
    const error = cause === undefined ? null : formatReason(cause);
    record({ ...startRecord, ended: new Date(clock.wallMs()), outcome, error });
  };
}

const outcomeUnlessLost = (outcome: CronRunOutcome, lease: Lease, error: unknown): CronRunOutcome =>
  lease.isLost || isLockLost(error) ? 'lost' : outcome;

/** Never throws: `instanceof` on a proxy may, and that error would hide the one that the job threw. */
function isLockLost(error: unknown): boolean {
  try {
    return error instanceof LockLostError;
  } catch {
    return false;
  }
}

/** Encodes a record as the text of at most `MAX_HISTORY_ENTRY_LENGTH` characters that the store keeps. */
function encodeRecord(record: CronRunRecord): string {
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
