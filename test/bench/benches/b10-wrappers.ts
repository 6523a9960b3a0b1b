import { type Bench, type Case, LEASE_MS, askOne } from '../bench.js';
import { importBuilt } from '../built-package.js';
import type { Setting } from '../contender.js';
import { median } from '../statistics.js';

interface Wrappers extends Case {
  readonly repetitions: number;
  readonly callsPerRound: number;
}

/** One call under a lock, in each of the ways. */
type Way = () => Promise<unknown>;
type Ways = Readonly<Record<'core' | 'service' | 'locked', Way>> & {
  /** Runs this while OpenTelemetry records metrics. */
  readonly withMetrics: (run: () => Promise<number>) => Promise<number>;
};

/** What the service, the decorator and metrics add to a call of the core, with locks in memory so that nothing else counts. */
export const b10: Bench<Wrappers> = {
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
    { name: 'alone', processes: 1, repetitions: isQuick ? 20 : 60, callsPerRound: isQuick ? 500 : 1_000 },
  ],
  measure: askOne,
  work: (_session, { setting }) => {
    const opening = openWays(setting);
    return async ({ repetitions, callsPerRound }) => {
      const ways = await opening;
      const inRounds: Record<'core' | 'service' | 'locked' | 'measured', number>[] = [];
      for (let left = repetitions; left > 0; left -= 1) {
        const core = await usPerCall(ways.core, callsPerRound);
        const service = await usPerCall(ways.service, callsPerRound);
        const locked = await usPerCall(ways.locked, callsPerRound);
        const measured = await ways.withMetrics(() => usPerCall(ways.service, callsPerRound));
        inRounds.push({ core, service, locked, measured });
      }
      // The first repetitions warm up.
      const counted = inRounds.slice(Math.floor(repetitions / 4));
      return {
        coreUs: median(counted.map(({ core }) => core)),
        serviceUs: median(counted.map(({ core, service }) => service - core)),
        lockedUs: median(counted.map(({ core, locked }) => locked - core)),
        metricsUs: median(counted.map(({ service, measured }) => measured - service)),
      };
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
  return {
    core: () => core.withLock('order:7', {}, async () => {}),
    service: () => service.withLock('order:7', async () => {}),
    locked: () => orders.ship('7'),
    async withMetrics(run) {
      using _recording = metrics?.instrumentLocks({ meterProvider });
      return await run();
    },
  };
}
