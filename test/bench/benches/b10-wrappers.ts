import { type Bench, type Case, LEASE_MS } from '../bench.js';
import { importBuilt } from '../built-package.js';
import type { Setting } from '../contender.js';

interface Wrappers extends Case {
  readonly calls: number;
  readonly warmUpCalls: number;
}

interface CallsRequest {
  readonly calls: number;
  /** In this process, from now on: subscribing and unsubscribing again and again would be measured, too. */
  readonly withMetrics: boolean;
}

/** One call under a lock, in each of the ways. */
type Ways = Readonly<Record<'core' | 'service' | 'locked', () => Promise<unknown>>> & {
  readonly startMetrics: () => void;
};

type TookUs = Readonly<Record<'core' | 'service' | 'locked', number>>;

const [PLAIN, MEASURED] = [0, 1];

/** What the service, the decorator and metrics add to a call of the core, with locks in memory so that nothing else counts. */
export const b10: Bench<Wrappers, CallsRequest, TookUs> = {
  name: 'B10',
  title: 'On top of a call of the core',
  columns: [
    { figure: 'lockedUs', title: '@Locked, µs', digits: 2 },
    { figure: 'serviceUs', title: 'LockService.withLock, µs', digits: 2 },
    { figure: 'metricsUs', title: 'metrics, µs', digits: 2 },
    { figure: 'coreUs', title: 'the core itself, µs', digits: 2 },
  ],
  better: 'less',
  leaseMs: LEASE_MS,
  isPinned: true,
  timeoutMs: 60_000,
  takesPart: ({ store }) => store === 'memory',
  cases: ({ isQuick }) => [
    {
      ...{ name: 'alone', processes: 2, rounds: isQuick ? 4 : 40 },
      ...{ calls: 1_000, warmUpCalls: isQuick ? 2_000 : 40_000 },
    },
  ],
  async warmUp(workers, { warmUpCalls: calls }) {
    await workers.ask(PLAIN, { calls, withMetrics: false });
    await workers.ask(MEASURED, { calls, withMetrics: true });
  },
  async measure(workers, { calls }) {
    const plain = await workers.ask(PLAIN, { calls, withMetrics: false });
    const measured = await workers.ask(MEASURED, { calls, withMetrics: true });
    return {
      coreUs: plain.core,
      serviceUs: plain.service - plain.core,
      lockedUs: plain.locked - plain.core,
      metricsUs: measured.service - plain.service,
    };
  },
  work: (_session, { setting }) => {
    const opening = openWays(setting);
    return async ({ calls, withMetrics }) => {
      const ways = await opening;
      if (withMetrics) ways.startMetrics();
      const core = await usPerCall(ways.core, calls);
      const service = await usPerCall(ways.service, calls);
      return { core, service, locked: await usPerCall(ways.locked, calls) };
    };
  },
};

async function usPerCall(call: () => Promise<unknown>, calls: number): Promise<number> {
  const fromMs = performance.now();
  for (let left = calls; left > 0; left -= 1) await call();
  return ((performance.now() - fromMs) / calls) * 1e3;
}

async function openWays({ leaseMs, waitMs }: Setting): Promise<Ways> {
  const { Injectable, Module } = await import('@nestjs/common');
  const { NestFactory } = await import('@nestjs/core');
  const { DistributedLockModule, LockService, Locked } = await importBuilt('index.js');
  const { Locks } = await importBuilt('core/locks.js');
  const { Events } = await importBuilt('core/events.js');
  const { memoryBackend } = await importBuilt('backends/memory/index.js');
  // An earlier build may have no metrics.
  const metrics = await importBuilt('opentelemetry/index.js').catch(() => undefined);
  const { AggregationTemporality, InMemoryMetricExporter, MeterProvider, PeriodicExportingMetricReader } =
    await import('@opentelemetry/sdk-metrics');

  @Injectable()
  class Orders {
    @Locked('order:{0}')
    async ship(_order: string): Promise<void> {}
  }

  @Module({ imports: [DistributedLockModule.forRoot({ backend: memoryBackend() })], providers: [Orders] })
  class App {}

  const source = { namespace: 'lock', instance: 'bench', backend: 'memory', module: 'default' };
  const defaults = { leaseMs, waitMs, renew: true };
  const core = new Locks({ ...source, backend: memoryBackend(), defaults, events: new Events(source) });
  const app = await NestFactory.createApplicationContext(App, { logger: false });
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const meterProvider = new MeterProvider({ readers: [new PeriodicExportingMetricReader({ exporter })] });
  const [service, orders] = [app.get(LockService), app.get(Orders)];
  let recording: Disposable | undefined;
  return {
    core: () => core.withLock('order:7', {}, async () => {}),
    service: () => service.withLock('order:7', async () => {}),
    locked: () => orders.ship('7'),
    startMetrics: () => (recording ??= metrics?.instrumentLocks({ meterProvider })),
  };
}
