import { channel, subscribe, tracingChannel, unsubscribe } from 'node:diagnostics_channel';
import { afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import { Injectable } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { SpanStatusCode, context, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { DataPointType, type MetricData, MeterProvider, MetricReader } from '@opentelemetry/sdk-metrics';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import {
  LeaderElection,
  LockConfigError,
  LockService,
  LockTimeoutError,
  Locked,
  SingletonCron,
} from '../../lib/index.js';
import { type InstrumentLocksOptions, instrumentLocks } from '../../lib/opentelemetry/index.js';
import type { LockEventMessage } from '../../lib/core/events.js';
import { LockControl, LockTestingModule } from '../../lib/testing/index.js';
import { until } from '../support/until.js';

@Injectable()
class Shop {
  failure: Error | undefined;

  @Locked('order:{0}')
  async ship(order: string): Promise<string> {
    return order;
  }

  @SingletonCron('0 3 * * *', { key: 'report' })
  async report(): Promise<void> {
    trace.getTracer('spec').startSpan('query').end();
    if (this.failure) throw this.failure;
  }
}

class Reader extends MetricReader {
  protected override async onForceFlush(): Promise<void> {}
  protected override async onShutdown(): Promise<void> {}
}

const LABELS = { backend: 'memory', module: 'default' };

const reader = new Reader();
const meterProvider = new MeterProvider({ readers: [reader] });
const exporter = new InMemorySpanExporter();
const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });

let app: TestingModule;
let locks: LockService;
let instrumentation: Disposable | undefined;

beforeAll(() => {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  trace.setGlobalTracerProvider(tracerProvider);
});

beforeEach(async () => {
  exporter.reset();
  app = await Test.createTestingModule({
    imports: [LockTestingModule.forRoot()],
    providers: [Shop],
  }).compile();
  app.useLogger(false);
  await app.init();
  locks = app.get(LockService);
});

afterEach(async () => {
  instrumentation?.[Symbol.dispose]();
  await app.close();
});

const instrument = (options: InstrumentLocksOptions = {}) =>
  (instrumentation = instrumentLocks({ meterProvider, tracerProvider, ...options }));

async function metric(name: string): Promise<MetricData | undefined> {
  const { resourceMetrics } = await reader.collect();
  return resourceMetrics.scopeMetrics
    .flatMap(({ metrics }) => metrics)
    .find(({ descriptor }) => descriptor.name === name);
}

/** The numbers of one template by name: of a histogram, how many values it has. */
async function pointsOf(name: string, template: string) {
  const found = await metric(name);
  return (found?.dataPoints ?? [])
    .filter(({ attributes }) => attributes['template'] === template)
    .map(({ attributes, value }) => ({ attributes, value: typeof value === 'object' ? value.count : value }));
}

const span = (name: string) => exporter.getFinishedSpans().find((one) => one.name === name);

it('locks are measured by template, backend and module, in seconds', async () => {
  instrument();
  await app.get(Shop).ship('42');
  await app.get(Shop).ship('43');
  for (const name of ['lock.wait', 'lock.hold']) {
    expect(await metric(name)).toMatchObject({
      descriptor: { unit: 's' },
      dataPointType: DataPointType.HISTOGRAM,
    });
    expect(await pointsOf(name, 'order:{0}')).toEqual([
      { attributes: { template: 'order:{0}', ...LABELS }, value: 2 },
    ]);
  }
});

it('what is held and who waits is counted up and down', async () => {
  instrument();
  const valueOf = async (name: string) => (await pointsOf(name, 'stock:{n}'))[0]?.value;
  const [held, other] = [await locks.acquire('stock:1'), await locks.acquire('stock:2')];
  const waiting = locks.acquire('stock:1');
  expect(await valueOf('lock.held')).toBe(2);
  expect(await valueOf('lock.waiting')).toBe(1);
  expect(await metric('lock.held')).toMatchObject({ isMonotonic: false, descriptor: { unit: '{lock}' } });
  expect(await metric('lock.waiting')).toMatchObject({
    isMonotonic: false,
    descriptor: { unit: '{caller}' },
  });
  await other.release();
  await held.release();
  const next = await waiting;
  expect(await valueOf('lock.waiting')).toBe(0);
  await locks.forceRelease('stock:1', next);
  expect(await next.release()).toBe(false);
  expect(await valueOf('lock.held')).toBe(0);
  expect(await pointsOf('lock.losses', 'stock:{n}')).toMatchObject([{ value: 1 }]);
});

it('permits with the same fencing token are counted one by one', async () => {
  instrument();
  const acquired: unknown[] = [];
  const listener = (message: unknown) => acquired.push(message);
  subscribe('nestjs-distributed-lock:acquired', listener);
  const held = await Promise.all([0, 1, 2].map(() => locks.acquire('pdf', { permits: 3 })));
  unsubscribe('nestjs-distributed-lock:acquired', listener);
  const heldOf = async () => (await pointsOf('lock.held', 'pdf'))[0]?.value;
  expect(await heldOf()).toBe(3);
  for (const lock of held) await lock.release();
  expect(await heldOf()).toBe(0);
  const [first] = acquired as LockEventMessage<'acquired'>[];
  // As two stores with equal clocks would do.
  for (const permit of [0, 1]) channel('nestjs-distributed-lock:acquired').publish({ ...first, permit });
  for (const permit of [0, 1]) {
    expect(await heldOf()).toBe(2 - permit);
    channel('nestjs-distributed-lock:released').publish({ ...first, permit, heldMs: 1 });
  }
  expect(await heldOf()).toBe(0);
});

it('two modules that hold the same key with the same fencing token are counted apart', async () => {
  instrument();
  const acquired: unknown[] = [];
  const listener = (message: unknown) => acquired.push(message);
  subscribe('nestjs-distributed-lock:acquired', listener);
  const ours = await locks.acquire('shared');
  unsubscribe('nestjs-distributed-lock:acquired', listener);
  const [first] = acquired as LockEventMessage<'acquired'>[];
  const theirs = { ...first, module: 'other' };
  const heldBy = async (module: string) =>
    (await pointsOf('lock.held', 'shared')).find(({ attributes }) => attributes['module'] === module)?.value;
  channel('nestjs-distributed-lock:acquired').publish(theirs);
  channel('nestjs-distributed-lock:released').publish({ ...theirs, heldMs: 1 });
  expect([await heldBy('default'), await heldBy('other')]).toEqual([1, 0]);
  await ours.release();
  expect(await heldBy('default')).toBe(0);
});

it('readers that share a fencing token are counted by their templates', async () => {
  instrument();
  const acquired: unknown[] = [];
  const listener = (message: unknown) => acquired.push(message);
  subscribe('nestjs-distributed-lock:acquired', listener);
  const reader = await locks.acquire('prices', { mode: 'read' });
  unsubscribe('nestjs-distributed-lock:acquired', listener);
  const [first] = acquired as LockEventMessage<'acquired'>[];
  const other = { ...first, template: 'other readers' };
  const heldBy = async (template: string) => (await pointsOf('lock.held', template))[0]?.value;
  channel('nestjs-distributed-lock:acquired').publish(other);
  channel('nestjs-distributed-lock:released').publish({ ...other, heldMs: 1 });
  expect([await heldBy('prices'), await heldBy('other readers')]).toEqual([1, 0]);
  await reader.release();
  expect(await heldBy('prices')).toBe(0);
});

it('a wait that is given up is no longer counted, and locks that a shutdown leaves are not held', async () => {
  instrument();
  await locks.acquire('left:1');
  const giveUp = new AbortController();
  const waiting = locks.acquire('left:1', { signal: giveUp.signal });
  const timedOut = locks.acquire('left:1', { waitMs: 0 });
  await expect(timedOut).rejects.toBeInstanceOf(LockTimeoutError);
  expect(await pointsOf('lock.waiting', 'left:{n}')).toMatchObject([{ value: 1 }]);
  expect(await pointsOf('lock.timeouts', 'left:{n}')).toEqual([
    { attributes: { template: 'left:{n}', ...LABELS }, value: 1 },
  ]);
  giveUp.abort(new Error('enough'));
  await expect(waiting).rejects.toThrow('enough');
  expect(await pointsOf('lock.waiting', 'left:{n}')).toMatchObject([{ value: 0 }]);
  await app.close();
  expect(await pointsOf('lock.held', 'left:{n}')).toMatchObject([{ value: 0 }]);
});

it('locks in opposite orders are counted by the template of the inner lock', async () => {
  instrument();
  await locks.withLock('one:1', () => locks.withLock('two:1', () => undefined));
  await locks.withLock('two:2', () => locks.withLock('one:2', () => undefined));
  expect(await pointsOf('lock.order_inversions', 'one:{n}')).toEqual([
    { attributes: { template: 'one:{n}', ...LABELS }, value: 1 },
  ]);
});

it('faults are counted from 0, so that the first one is an increase', async () => {
  instrument();
  await locks.withLock('begin:1', () => undefined);
  for (const name of ['lock.losses', 'lock.timeouts', 'lock.unavailable', 'lock.renewal_failures'])
    expect(await pointsOf(name, 'begin:{n}')).toEqual([
      { attributes: { template: 'begin:{n}', ...LABELS }, value: 0 },
    ]);
});

it('a store that does not answer is counted', async () => {
  instrument();
  app.get(LockControl).disconnect();
  await expect(locks.acquire('away:1')).rejects.toThrow('unreachable');
  expect(await pointsOf('lock.unavailable', 'away:{n}')).toMatchObject([{ attributes: LABELS }]);
});

it('runs are counted by outcome, ticks that are skipped by reason', async () => {
  instrument();
  const shop = app.get(Shop);
  const control = app.get(LockControl);
  await control.fire('report');
  shop.failure = new Error('no paper');
  await expect(control.fire('report')).rejects.toThrow('no paper');
  const tick = new Date();
  shop.failure = undefined;
  await control.fire('report', { tick });
  await control.fire('report', { tick });
  const labels = { template: 'report', ...LABELS };
  expect(await pointsOf('job.runs', 'report')).toEqual([
    { attributes: { ...labels, outcome: 'completed' }, value: 2 },
    { attributes: { ...labels, outcome: 'failed' }, value: 1 },
  ]);
  expect(await pointsOf('job.skips', 'report')).toEqual([
    { attributes: { ...labels, reason: 'taken' }, value: 1 },
  ]);
  expect(await pointsOf('job.duration', 'report')).toEqual([{ attributes: labels, value: 3 }]);
  expect(await pointsOf('lock.hold', 'report')).toEqual([]);
});

it('the leader shows 1, and 0 after its term, which is a span', async () => {
  instrument();
  const candidate = app.get(LeaderElection).join('reporter');
  await until(() => candidate.isLeader());
  expect(await pointsOf('election.leader', 'reporter')).toEqual([
    { attributes: { template: 'reporter', ...LABELS }, value: 1 },
  ]);
  expect(span('leader.term')).toBeUndefined();
  await candidate.leave();
  expect(await pointsOf('election.leader', 'reporter')).toMatchObject([{ value: 0 }]);
  expect(span('leader.term')?.attributes).toMatchObject({
    template: 'reporter',
    reason: 'resigned',
    ...LABELS,
  });
});

/** Many at once, because a busy machine may take long for each turn of the event loop. */
async function lockTenThousand(keyOf: (index: number) => string): Promise<void> {
  const atOnce = 500;
  for (let first = 0; first < 10_000; first += atOnce) {
    const keys = Array.from({ length: atOnce }, (_, index) => keyOf(first + index));
    await Promise.all(keys.map((key) => locks.withLock(key, () => undefined)));
  }
}

it('ten thousand keys make one series, and so do ten thousand templates after the first 500', async () => {
  instrument();
  await lockTenThousand((index) => `many:${index}`);
  expect((await metric('lock.wait'))!.dataPoints.length).toBeLessThan(20);
  const wordOf = (index: number) =>
    Array.from(String(index))
      .map((digit) => 'abcdefghij'[Number(digit)])
      .join('');
  await lockTenThousand(wordOf);
  const { dataPoints } = (await metric('lock.wait'))!;
  expect(dataPoints.length).toBeLessThan(520);
  expect(dataPoints.some(({ attributes }) => attributes['template'] === 'other')).toBe(true);
  // Jobs and elections keep their names.
  await app.get(LockControl).fire('report');
  expect(await pointsOf('job.duration', 'report')).toHaveLength(1);
}, 60_000);

it.each(['lost', 'timed-out'])(
  'a run that was %s is an error, even if its method returned',
  async (outcome) => {
    instrument();
    const run = { template: 'report', tick: new Date(), attempt: 1, ...LABELS, outcome };
    await tracingChannel('nestjs-distributed-lock:run').tracePromise(async () => undefined, run);
    expect(span('job.run')).toMatchObject({
      status: { code: SpanStatusCode.ERROR },
      attributes: { outcome, 'error.type': outcome },
    });
  },
);

it('only a wait is a span, with the key on request only', async () => {
  instrument();
  const contend = async () => {
    const held = await locks.acquire('order:42');
    const waiting = trace.getTracer('spec').startActiveSpan('request', async (request) => {
      await locks.withLock('order:42', () => undefined);
      request.end();
    });
    await held.release();
    await waiting;
  };
  await contend();
  expect(exporter.getFinishedSpans().map(({ name }) => name)).toEqual(['lock.acquire', 'request']);
  expect(span('lock.acquire')?.attributes).toEqual({ template: 'order:{n}', ...LABELS });
  expect(span('lock.acquire')?.parentSpanContext?.spanId).toBe(span('request')?.spanContext().spanId);
  instrumentation?.[Symbol.dispose]();
  exporter.reset();
  instrument({ includeKeys: true });
  await contend();
  expect(span('lock.acquire')?.attributes['lock.key']).toBe('order:42');
});

it('a run is a span, and what it does is part of it', async () => {
  instrument();
  await app.get(LockControl).fire('report');
  const run = span('job.run')!;
  expect(run.attributes).toMatchObject({
    template: 'report',
    outcome: 'completed',
    'job.attempt': 1,
    ...LABELS,
  });
  expect(span('query')?.parentSpanContext?.spanId).toBe(run.spanContext().spanId);
  exporter.reset();
  app.get(Shop).failure = new TypeError('no paper');
  await expect(app.get(LockControl).fire('report')).rejects.toThrow('no paper');
  expect(span('job.run')).toMatchObject({
    attributes: { outcome: 'failed', 'error.type': 'TypeError' },
    events: [{ name: 'exception' }],
  });
});

it('the span of a run does not show which key its lock error is about', async () => {
  instrument();
  app.get(Shop).failure = new LockTimeoutError('"customer:alice" was still taken', { key: 'customer:alice' });
  await expect(app.get(LockControl).fire('report')).rejects.toThrow('alice');
  expect(span('job.run')).toMatchObject({
    attributes: { 'error.type': 'LOCK_TIMEOUT' },
    events: [{ name: 'exception', attributes: { 'exception.type': 'LockTimeoutError' } }],
  });
  expect(JSON.stringify(span('job.run')!.events)).not.toContain('alice');
});

it('nothing is recorded after the end, and wrong options are refused', async () => {
  const { [Symbol.dispose]: stop } = instrument();
  stop();
  await locks.withLock('ended', () => undefined);
  expect(await pointsOf('lock.wait', 'ended')).toEqual([]);
  expect(() => instrumentLocks({ keys: true } as object)).toThrow(LockConfigError);
});
