import { LockLostError, LockShutdownError, isError } from '../core/errors.js';
import type { RunEndOutcome } from '../core/events.js';
import { formatReason } from '../core/format.js';
import { withJson } from '../core/json.js';
import type { LockHandle } from '../core/leases/lock-handle.js';
import type { Locks } from '../core/locks.js';
import { type RunTrace, traceRun } from '../core/tracing-channels.js';
import type { CronRun, Job } from './job.js';
import { planIdOf } from './plan/plan.js';
import { type CronRunRecord, MAX_ERROR_LENGTH, type RunOrigin, encodeRecord } from './run-record.js';
import { isTimedOut, runWithTimeLimit } from './run-time-limit.js';

export interface JobRun {
  readonly locks: Locks;
  readonly job: Job;
  readonly tickMs: number;
  readonly lock: LockHandle;
  /** Whether no tick was claimed for the run. */
  readonly isManual?: boolean;
  /** Receives what the history gets: the start and the end of the run. */
  readonly onRecord?: (record: CronRunRecord) => void;
}

/** A run that may begin. */
export interface ClaimedRun extends Omit<JobRun, 'locks' | 'job'> {
  /** Another lock that is held until the end of the run. */
  readonly turn?: LockHandle | undefined;
  /** Called when the run has ended and its lock is released. */
  readonly onEnd?: () => Promise<void>;
}

/** Runs the body of a job under its claimed lease, and reports the start and the end of the run. */
export function runJob(
  { locks, job, tickMs, lock, ...reported }: JobRun,
  body: (run: CronRun) => Promise<unknown>,
): Promise<unknown> {
  const { fencingToken, signal } = lock;
  const { attempt } = lock.grant;
  const run: CronRun = withJson({ tick: new Date(tickMs), attempt, fencingToken, signal });
  // A date of its own, because the body may change that of the run.
  const event: RunEvent = { job: job.key, tick: new Date(tickMs), fencingToken, attempt };
  locks.events.emit('tick-claimed', { ...event });
  if (locks.isInTransaction) locks.events.emit('transaction-open', { key: job.key, fencingToken }, lock);
  const origin = { deployKey: job.options.deployKey, planId: job.plan && planIdOf(job.plan) };
  const reportEnd = reportStart(locks, event, { origin, ...reported });
  const endRun = (isInterrupted = false) => {
    // A manual run has no tick to end. A dead run before it may still be retried.
    if (!reported.isManual && !isInterrupted) lock.endRun();
  };
  const runBody = async (trace?: RunTrace) => {
    const end = (outcome: RunEndOutcome, error?: unknown) => {
      if (trace) trace.outcome = outcome;
      reportEnd(outcome, error);
    };
    try {
      const value = await runWithTimeLimit({ locks, job, lock }, () => body(run));
      endRun();
      if (isTimedOut(signal)) end('timed-out', signal.reason);
      else end(lock.isLost ? 'lost' : 'completed');
      return value;
    } catch (error) {
      const hasTimedOut = isTimedOut(signal);
      const isInterrupted =
        !hasTimedOut && (isShutdown(signal.reason) || (locks.stopping.aborted && isShutdown(error)));
      endRun(isInterrupted);
      const outcome = hasTimedOut ? 'timed-out' : outcomeUnlessLost('failed', lock, error);
      end(isInterrupted ? 'interrupted' : outcome, error);
      throw error;
    }
  };
  const createTrace = () => ({ ...locks.events.source, ...event, template: job.key });
  return locks.runAndRelease(lock, () => traceRun(createTrace, runBody));
}

/** The fields of the events of one run. */
interface RunEvent {
  readonly job: string;
  readonly tick: Date;
  readonly fencingToken: bigint;
  readonly attempt: number;
}

interface ReportedRun extends Pick<JobRun, 'isManual' | 'onRecord'> {
  readonly origin: RunOrigin;
}

/** Adds the run to the history and publishes its start. Returns the function that does so for its end. */
function reportStart(locks: Locks, event: RunEvent, { origin, isManual = false, onRecord }: ReportedRun) {
  const { clock, instance, events } = locks;
  const { job, tick, attempt, fencingToken } = event;
  const record = (entry: CronRunRecord) => {
    void locks.jobs.appendHistory(job, encodeRecord(entry, origin));
    onRecord?.(entry);
  };
  const startRecord: CronRunRecord = {
    ...{ tick, attempt, isManual, instance, fencingToken, started: new Date(clock.wallMs()) },
    ...{ ended: null, outcome: 'running', error: null },
  };
  record(startRecord);
  const startedAtMs = clock.monotonicMs();
  events.emit('tick-started', { ...event });
  return (outcome: RunEndOutcome, cause?: unknown): void => {
    const error = cause === undefined ? null : formatReason(cause).slice(0, MAX_ERROR_LENGTH);
    record({ ...startRecord, ended: new Date(clock.wallMs()), outcome, error });
    const durationMs = clock.monotonicMs() - startedAtMs;
    events.emit('tick-ended', { ...event, outcome, durationMs, error: cause });
  };
}

const outcomeUnlessLost = (outcome: RunEndOutcome, lock: LockHandle, error: unknown): RunEndOutcome =>
  lock.isLost || isLossOf(lock, error) ? 'lost' : outcome;

/** Its own lock, and not another one that it has acquired. */
const isLossOf = (lock: LockHandle, error: unknown): boolean =>
  isError(LockLostError, error) && error.key === lock.key;

const isShutdown = (error: unknown): boolean => isError(LockShutdownError, error);
