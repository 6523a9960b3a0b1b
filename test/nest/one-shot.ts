/** A script that calls a job, or `runNow()`, once. Nothing but what it waits for keeps its process alive. */
import 'reflect-metadata';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { MemoryBackend } from '../../lib/backends/memory/index.js';
import { manualStoreKey } from '../../lib/core/store-key.js';
import { CronRuns, DistributedLockModule, SingletonCron } from '../../lib/index.js';

@Injectable()
class Jobs {
  @SingletonCron('* * * * *', { key: 'report', jitterMs: 2_000 })
  async report(): Promise<void> {
    console.log('ran');
  }
}

const backend = new MemoryBackend();

@Module({ imports: [DistributedLockModule.forRoot({ backend })], providers: [Jobs] })
class App {}

const app = await NestFactory.createApplicationContext(App, { logger: false });
if (process.argv[2] === 'call') {
  await app.get(Jobs).report();
} else {
  // Another call of `runNow()` has begun, and its process has died.
  const tick = { tickMs: 1, maxEarlyMs: 0, staleAfterMs: Number.MAX_SAFE_INTEGER };
  const other = {
    key: manualStoreKey('lock', 'report'),
    holder: 'other',
    instance: 'other',
    leaseMs: 2_000,
    tick,
  };
  await backend.execute({ acquire: [other] });
  await app
    .get(CronRuns)
    .runNow('report')
    .catch((error: unknown) => console.log((error as Error).name));
}
console.log('ended');
await app.close();
