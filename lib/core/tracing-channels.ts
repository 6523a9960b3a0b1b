import { tracingChannel } from 'node:diagnostics_channel';
import type { EventSource, LockPurpose } from './events.js';
import { templateOf } from './event-template.js';

/** The context of one acquisition in the `TracingChannel` `nestjs-distributed-lock:acquire`. */
export interface AcquireTrace extends EventSource {
  readonly key: string;
  readonly template: string;
  readonly purpose: LockPurpose;
  readonly waitMs: number;
  readonly leaseMs: number;
  /** Whether the key was taken, so that the caller waited. Known when the acquisition has ended. */
  isContended: boolean;
  /** The lock; `null` if `tryAcquire` did not get it. */
  readonly result?: unknown;
  readonly error?: unknown;
}

/** The context of one run of a job in the `TracingChannel` `nestjs-distributed-lock:run`. */
export interface RunTrace extends EventSource {
  readonly job: string;
  readonly template: string;
  readonly tick: Date;
  readonly attempt: number;
  readonly fencingToken: bigint;
  /** Known when the run has ended. */
  outcome?: string;
  /** A subscriber of `start` may set this function, which then calls the method: for example in the context of a span. */
  activate?: <T>(run: () => T) => T;
  readonly error?: unknown;
}

const acquireChannel = tracingChannel<unknown, AcquireTrace>('nestjs-distributed-lock:acquire');
const runChannel = tracingChannel<unknown, RunTrace>('nestjs-distributed-lock:run');

interface TracedParams {
  readonly key: string;
  readonly label?: string | undefined;
  readonly waitMs: number;
  readonly leaseMs: number;
}

/** Named one by one, because spreads of several objects are slow. */
export function createAcquireTrace(
  { namespace, instance, backend, module }: EventSource,
  { key, label, waitMs, leaseMs }: TracedParams,
): AcquireTrace {
  const template = label ?? templateOf(key);
  const [purpose, isContended] = ['lock', false] as const;
  return { namespace, instance, backend, module, key, template, purpose, waitMs, leaseMs, isContended };
}

export const isAcquireTraced = (): boolean => acquireChannel.hasSubscribers;

export const traceAcquire = <T>(trace: AcquireTrace, acquire: () => Promise<T>): Promise<T> =>
  acquireChannel.tracePromise(acquire, trace);

/** Runs the body of a job. Without a subscriber, no trace is created. */
export function traceRun<T>(createTrace: () => RunTrace, body: (trace?: RunTrace) => Promise<T>): Promise<T> {
  if (!runChannel.hasSubscribers) return body();
  const trace = createTrace();
  const run = () => body(trace);
  return runChannel.tracePromise(() => (trace.activate ? trace.activate(run) : run()), trace);
}
