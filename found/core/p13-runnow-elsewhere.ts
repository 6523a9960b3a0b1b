// runNow in a process whose scheduler does not fire the job, over a planned tick: who runs that tick?
import { MemoryBackend, sleep } from './common.js';
import { Test } from '@nestjs/testing';
import { ScheduleModule } from '@nestjs/schedule';
import { subscribe } from 'node:diagnostics_channel';
import { CronRuns, DistributedLockModule, SingletonCron } from '../lib/index.js';
const store = new MemoryBackend();
subscribe('nestjs-distributed-lock:tick-skipped', (m: any) => console.log(`  skipped by ${m.instance}: ${m.reason} ${m.tick.toISOString()}`));
const ran: string[] = [];
const make = async (instance: string, cronJobs: boolean) => {
  class Jobs { async work(run: any) { ran.push(`${instance} ${run.tick.toISOString()}`); await sleep(instance === 'web' ? 2_600 : 10); } }
  SingletonCron('*/5 * * * * *', { key: 'job' })(Jobs.prototype, 'work', Object.getOwnPropertyDescriptor(Jobs.prototype, 'work')!);
  const d = Object.getOwnPropertyDescriptor(Jobs.prototype, 'work')!; void d;
  return { Jobs, instance, cronJobs };
};
import { Injectable } from '@nestjs/common';
const boot = async (instance: string, cronJobs: boolean) => {
  @Injectable()
  class Jobs {
    @SingletonCron('*/5 * * * * *', { key: 'job' })
    async work(run: any) { ran.push(`${instance} ${run.tick.toISOString()}`); await sleep(instance === 'web' ? 2_600 : 10); }
  }
  const app = await Test.createTestingModule({ imports: [ScheduleModule.forRoot({ cronJobs }), DistributedLockModule.forRoot({ backend: store, namespace: 'ns', instance })], providers: [Jobs] }).compile();
  await app.init();
  return app;
};
void make;
const worker = await boot('worker', true);
const web = await boot('web', false);
// wait until 1.3 s before a tick
const now = Date.now(); const next = Math.ceil((now + 1_500) / 5_000) * 5_000;
await sleep(next - 1_300 - now);
console.log('tick due at', new Date(next).toISOString());
await web.get(CronRuns).runNow('job');
await sleep(1_500);
console.log('ran:', ran);
void worker;
process.exit();
