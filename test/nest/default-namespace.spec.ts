import { afterEach, expect, it } from 'vitest';
import { type INestApplicationContext, Injectable } from '@nestjs/common';
import { ScheduleModule } from '@nestjs/schedule';
import { Test } from '@nestjs/testing';
import { memoryBackend } from '../../lib/backends/memory/index.js';
import type { LockBackend } from '../../lib/core/backend.js';
import { DistributedLockModule, LeaderElection, Locked, OnElected, SingletonCron } from '../../lib/index.js';
import { LockTestingModule } from '../../lib/testing/index.js';

const apps: INestApplicationContext[] = [];
afterEach(async () => {
  for (const app of apps.splice(0)) await app.close();
});

/** A memory backend whose name makes it look like a store that other processes share. */
const sharedStore = (): LockBackend => Object.assign(memoryBackend(), { name: 'postgres' });

@Injectable()
class Jobs {
  @SingletonCron('0 3 * * *')
  nightly(): void {}
}

@Injectable()
class Leaders {
  @OnElected('dispatcher')
  lead(): void {}
}

@Injectable()
class LateLeaders {
  constructor(private readonly election: LeaderElection) {}

  onModuleInit(): void {
    this.election.join('shipping');
  }
}

@Injectable()
class OnlyLocks {
  @Locked('order:{0}')
  async buy(order: string): Promise<string> {
    return order;
  }
}

type Class = new (...args: never[]) => object;

async function warningsOf(
  lockModule: ReturnType<typeof DistributedLockModule.forRoot>,
  ...providers: Class[]
) {
  const warnings: string[] = [];
  const quiet = () => undefined;
  const app = await Test.createTestingModule({ imports: [ScheduleModule.forRoot(), lockModule], providers })
    .setLogger({ log: quiet, error: quiet, warn: (text: string) => void warnings.push(text) })
    .compile();
  apps.push(app);
  await app.init();
  return warnings;
}

it.each([
  ['a job', Jobs, /default, 'lock'.*'Jobs\.nightly'.*Set namespace to the name of your application/],
  ['an election', Leaders, /'dispatcher'/],
  ['an election that is joined at boot', LateLeaders, /'shipping'/],
])('%s under the default namespace of a shared store causes one warning', async (_, provider, text) => {
  const lockModule = DistributedLockModule.forRoot({ backend: sharedStore() });
  expect(await warningsOf(lockModule, provider)).toEqual([expect.stringMatching(text)]);
});

it.each([
  ['a namespace was chosen', { backend: sharedStore(), namespace: 'shop' }],
  ['the default was chosen by name', { backend: sharedStore(), namespace: 'lock' }],
  ['the store is the memory of the process', { backend: memoryBackend() }],
])('no warning if %s', async (_, options) => {
  expect(await warningsOf(DistributedLockModule.forRoot(options), Jobs, Leaders)).toEqual([]);
});

it('no warning without jobs and elections', async () => {
  const lockModule = DistributedLockModule.forRoot({ backend: sharedStore() });
  expect(await warningsOf(lockModule, OnlyLocks)).toEqual([]);
});

it('no warning under LockTestingModule', async () => {
  expect(await warningsOf(LockTestingModule.forRoot(), Jobs, Leaders)).toEqual([]);
});
