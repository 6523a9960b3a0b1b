import { subscribe } from 'node:diagnostics_channel';
import { Injectable } from '@nestjs/common';
import { Interval, ScheduleModule } from '@nestjs/schedule';
import { Test } from '@nestjs/testing';
import {
  type CronRun,
  DistributedLockModule,
  type LockEventMessage,
  OnElected,
  SingletonCron,
} from '../../../lib/index.js';
import { machineMs } from '../../support/machine-clock.js';
import { type Store, backendOn } from '../../support/stores.js';
import { task, sendToParent } from './worker-support.js';

/** One replica of an application with a guarded job and an election. Tells each tick that it runs, and when it leads. */
const { store, namespace, periodMs } = task() as { store: Store; namespace: string; periodMs: number };

@Injectable()
class Work {
  @SingletonCron({ key: 'job' })
  @Interval(periodMs)
  run({ tick }: CronRun): Promise<void> {
    sendToParent({ ranTickMs: tick.getTime() });
    return Promise.resolve();
  }

  @OnElected('boss')
  lead(): Promise<void> {
    sendToParent({ electedAtMs: machineMs() });
    return Promise.resolve();
  }
}

subscribe('nestjs-distributed-lock:tick-skipped', (message) => {
  const { tick, reason } = message as LockEventMessage<'tick-skipped'>;
  sendToParent({ skippedTickMs: tick.getTime(), reason });
});

subscribe('nestjs-distributed-lock:revoked', (message) => {
  const { reason } = message as LockEventMessage<'revoked'>;
  sendToParent({ revokedAtMs: machineMs(), reason });
});

const app = await Test.createTestingModule({
  imports: [
    DistributedLockModule.forRoot({ backend: backendOn(store), namespace, instance: `${process.pid}` }),
    ScheduleModule.forRoot(),
  ],
  providers: [Work],
}).compile();
await app.init();
sendToParent({ isReady: true });
process.once('message', () => void app.close().then(() => process.disconnect()));
