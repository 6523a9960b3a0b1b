import { setTimeout as sleep } from 'node:timers/promises';
import type { Store } from '../../support/stores.js';
import { shiftDate } from './shifted-date.js';

const { store, namespace, skewMs, schedulers } = JSON.parse(process.argv[2]!) as {
  store: Store;
  namespace: string;
  skewMs: number;
  schedulers: number;
};
// Before anything that could keep the real one.
shiftDate(skewMs);

const { Injectable } = await import('@nestjs/common');
const { ScheduleModule } = await import('@nestjs/schedule');
const { Test } = await import('@nestjs/testing');
const { DistributedLockModule, SingletonCron } = await import('../../../lib/index.js');
const { backendOn } = await import('../../support/stores.js');
const { sendToParent } = await import('./worker-support.js');

@Injectable()
class Report {
  @SingletonCron('* * * * * *', { key: 'report' })
  async run({ tick }: { tick: Date }): Promise<void> {
    sendToParent({ tickMs: tick.getTime() });
    await sleep(1);
  }
}

const app = await Test.createTestingModule({
  imports: [
    DistributedLockModule.forRoot({ backend: backendOn(store), namespace }),
    ...Array.from({ length: schedulers }, () => ScheduleModule.forRoot()),
  ],
  providers: [Report],
}).compile();
await app.init();
sendToParent({ isReady: true });
process.once('message', () => void app.close().then(() => process.disconnect()));
