import { type MeterProvider, type TracerProvider, metrics, trace } from '@opentelemetry/api';
import { OptionErrors } from '../core/option-errors.js';
import { VERSION } from '../core/version.js';
import { recordMetrics } from './lock-metrics.js';
import { recordSpans } from './lock-spans.js';

export interface InstrumentLocksOptions {
  /** @default the global provider of `@opentelemetry/api` */
  meterProvider?: MeterProvider;
  /** @default the global provider of `@opentelemetry/api` */
  tracerProvider?: TracerProvider;
  /**
   * Adds the key to the spans of acquisitions, as `lock.key`. Metrics never have it.
   *
   * @default false
   */
  includeKeys?: boolean;
}

const NAME = 'nestjs-distributed-lock';

/**
 * Records metrics and spans of all lock modules of this process, until it is disposed of. Call it once, after the
 * OpenTelemetry SDK has been started and before the application boots. If you call it twice, everything counts twice.
 *
 * @throws LockConfigError for wrong options
 */
export function instrumentLocks(options: InstrumentLocksOptions = {}): Disposable {
  const errors = new OptionErrors();
  errors.object('options', options, ['meterProvider', 'tracerProvider', 'includeKeys']);
  errors.boolean('options.includeKeys', options.includeKeys);
  errors.throwIfAny('instrumentLocks()');
  const meter = (options.meterProvider ?? metrics).getMeter(NAME, VERSION);
  const tracer = (options.tracerProvider ?? trace).getTracer(NAME, VERSION);
  const stops = [recordMetrics(meter), recordSpans({ tracer, includeKeys: options.includeKeys ?? false })];
  return { [Symbol.dispose]: () => stops.splice(0).forEach((stop) => stop()) };
}
