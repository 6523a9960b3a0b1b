import {
  type Attributes,
  type Context,
  type Exception,
  type Span,
  SpanStatusCode,
  type Tracer,
  context,
  trace as traceApi,
} from '@opentelemetry/api';
import { systemClock } from '../core/clock.js';
import { LockError, isError } from '../core/errors.js';
import type { EventSource, LockEventMessage } from '../core/events.js';
import { formatReason } from '../core/format.js';
import type { AcquireTrace, RunTrace } from '../core/tracing-channels.js';
import { subscribeToEvents, subscribeToTraces } from '../core/event-subscriptions.js';

interface SpanParts {
  readonly tracer: Tracer;
  /** Whether spans of acquisitions have the key. */
  readonly includeKeys: boolean;
}

/** Makes a span of each contended acquisition, each run of a job and each term. Returns a function that stops it. */
export function recordSpans(parts: SpanParts): () => void {
  const stops = [traceAcquisitions(parts), traceRuns(parts.tracer), traceTerms(parts.tracer)];
  return () => stops.forEach((stop) => stop());
}

function traceAcquisitions({ tracer, includeKeys }: SpanParts): () => void {
  // Not a WeakMap: the garbage collector spends long on one with many entries.
  const starts = new Map<AcquireTrace, { readonly startTime: number; readonly parent: Context }>();
  return subscribeToTraces<AcquireTrace>('acquire', {
    start: (trace) => starts.set(trace, { startTime: systemClock.wallMs(), parent: context.active() }),
    // Only then is it known whether the caller had to wait.
    asyncEnd: (trace) => {
      const started = starts.get(trace);
      starts.delete(trace);
      if (!started || !trace.isContended) return;
      const attributes = { ...attributesOf(trace), ...(includeKeys && { 'lock.key': trace.key }) };
      const { startTime, parent } = started;
      const span = tracer.startSpan('lock.acquire', { startTime, attributes }, parent);
      if (trace.error !== undefined) setError(span, trace.error);
      span.end();
    },
  });
}

function traceRuns(tracer: Tracer): () => void {
  const spans = new WeakMap<RunTrace, Span>();
  return subscribeToTraces<RunTrace>('run', {
    start: (trace) => {
      const { tick, attempt, activate } = trace;
      const attributes = { 'job.tick': tick.toISOString(), 'job.attempt': attempt };
      const span = tracer.startSpan('job.run', { attributes: { ...attributesOf(trace), ...attributes } });
      spans.set(trace, span);
      const spanContext = traceApi.setSpan(context.active(), span);
      trace.activate = (run) => context.with(spanContext, () => (activate ? activate(run) : run()));
    },
    asyncEnd: (trace) => {
      const span = spans.get(trace);
      if (!span) return;
      const { outcome, error } = trace;
      if (outcome !== undefined) span.setAttribute('outcome', outcome);
      if (error !== undefined) {
        span.recordException(exceptionOf(error));
        setError(span, error);
      } else if (outcome === 'lost' || outcome === 'timed-out') {
        // The method may have returned all the same, because its signal aborted.
        span.setStatus({ code: SpanStatusCode.ERROR });
        span.setAttribute('error.type', outcome);
      }
      span.end();
    },
  });
}

function traceTerms(tracer: Tracer): () => void {
  const spans = new Map<string, Span>();
  const stop = subscribeToEvents({
    elected: (message) => {
      const attributes = { ...attributesOf(message), 'election.term': String(message.term) };
      spans.set(nameOf(message), tracer.startSpan('leader.term', { root: true, attributes }));
    },
    revoked: (message) => {
      const name = nameOf(message);
      const span = spans.get(name);
      spans.delete(name);
      span?.setAttribute('reason', message.reason);
      if (message.reason === 'lost') span?.setStatus({ code: SpanStatusCode.ERROR });
      span?.end();
    },
  });
  return () => {
    stop();
    for (const span of spans.values()) span.end();
  };
}

const nameOf = ({ module, namespace, instance, election, term }: LockEventMessage<'elected'>) =>
  [module, namespace, instance, election, term].join('\n');

const attributesOf = ({
  template,
  backend,
  module,
}: Pick<EventSource, 'backend' | 'module'> & { readonly template: string }): Attributes => ({
  ...{ template, backend, module },
});

/** The message of a lock error names the key. */
function exceptionOf(error: unknown): Exception {
  if (isError(LockError, error)) return { name: error.name };
  return isError(Error, error) ? error : formatReason(error);
}

/** Without the message, because that of a lock error names the key. */
function setError(span: Span, error: unknown): void {
  span.setStatus({ code: SpanStatusCode.ERROR });
  if (isError(LockError, error)) span.setAttribute('error.type', error.code);
  else if (isError(Error, error)) span.setAttribute('error.type', error.name);
}
