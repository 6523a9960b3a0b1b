import { subscribe } from 'node:diagnostics_channel';
import { setTimeout as sleep } from 'node:timers/promises';
import type { CronRun, LockEventMessage, SingletonCronOptions } from '../../../lib/index.js';
import type { Store } from '../../support/stores.js';
import { machineMs } from '../../support/machine-clock.js';
import { shiftDate } from './shifted-date.js';

/** Runs one guarded interval and tells all that becomes of it. */
const { store, namespace, skewMs, periodMs, workMs, options } = JSON.parse(process.argv[2]!) as {
  store: Store;
  namespace: string;
  skewMs: number;
  periodMs: number;
  /** At most. */
  workMs: number;
  options: SingletonCronOptions;
};
// Before anything that could keep the real one.
shiftDate(skewMs);

const { Injectable } = await import('@nestjs/common');
const { Interval, ScheduleModule } = await import('@nestjs/schedule');
const { Test } = await import('@nestjs/testing');
const { DistributedLockModule, SingletonCron, currentLock } = await import('../../../lib/index.js');
const { backendOn } = await import('../../support/stores.js');
const { sendToParent } = await import('./worker-support.js');

@Injectable()
class Job {
  @SingletonCron({ key: 'job', ...options })
  @Interval(periodMs)
  async run({ tick, attempt, fencingToken }: CronRun): Promise<void> {
    const lock = currentLock()!;
    const run = { tickMs: tick.getTime(), attempt, token: String(fencingToken) };
    sendToParent({ begun: { ...run, atMs: machineMs() } });
    await sleep(Math.random() * workMs);
    const isValid = lock.isValid();
    sendToParent({ ended: { ...run, atMs: machineMs(), isValid } });
  }
}

subscribe('nestjs-distributed-lock:released', (message) => {
  const { fencingToken } = message as LockEventMessage<'released'>;
  sendToParent({ recorded: String(fencingToken) });
});
subscribe('nestjs-distributed-lock:tick-skipped', (message) => {
  const { tick, reason } = message as LockEventMessage<'tick-skipped'>;
  sendToParent({ skipped: { tickMs: tick.getTime(), reason } });
});

const app = await Test.createTestingModule({
  imports: [
    DistributedLockModule.forRoot({ backend: backendOn(store), namespace, instance: `${process.pid}` }),
    ScheduleModule.forRoot(),
  ],
  providers: [Job],
})
  .setLogger({
    log: () => undefined,
    warn: (warned: string) => sendToParent({ warned }),
    error: () => undefined,
  })
  .compile();
const bootedMs = Date.now();
await app.init();
sendToParent({ bootedMs });
process.once('message', () => void app.close().then(() => process.disconnect()));
