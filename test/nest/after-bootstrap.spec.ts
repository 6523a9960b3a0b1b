import { expect, it } from 'vitest';
import { Injectable, Module, type OnApplicationBootstrap } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ScheduleModule } from '@nestjs/schedule';
import { Test } from '@nestjs/testing';
import { MemoryBackend } from '../../lib/backends/memory/index.js';
import { DistributedLockModule, LeaderElection, OnElected, SingletonCron } from '../../lib/index.js';
import { SettableClock } from '../../lib/testing/index.js';
import { until } from '../support/until.js';

it('no leader works before every onApplicationBootstrap has ended, including that of the root module', async () => {
  const log: string[] = [];
  const prepare = async (name: string) => {
    await new Promise((resolve) => setTimeout(resolve, 50));
    log.push(name);
  };

  @Injectable()
  class Dispatcher implements OnApplicationBootstrap {
    onApplicationBootstrap = () => prepare('provider');

    @OnElected('boss')
    async lead(): Promise<void> {
      log.push('elected');
    }
  }

  @Module({
    imports: [
      DistributedLockModule.forRoot({ backend: new MemoryBackend() }),
      DistributedLockModule.forRoot({ backend: new MemoryBackend(), name: 'second' }),
    ],
    providers: [Dispatcher],
  })
  class AppModule implements OnApplicationBootstrap {
    onApplicationBootstrap(): Promise<void> {
      return prepare('root');
    }
  }

  const app = await NestFactory.createApplicationContext(AppModule, { logger: false });
  try {
    await until(() => log.includes('elected'));
    expect(log).toEqual(['provider', 'root', 'elected']);
    expect(Object.hasOwn(app.get(AppModule), 'onApplicationBootstrap')).toBe(false);
  } finally {
    await app.close();
  }
});

it('a frozen instance of the root module boots, and leaders work', async () => {
  let isElected = false;

  @Injectable()
  class Dispatcher {
    @OnElected('boss')
    async lead(): Promise<void> {
      isElected = true;
    }
  }

  @Module({
    imports: [DistributedLockModule.forRoot({ backend: new MemoryBackend() })],
    providers: [Dispatcher],
  })
  class AppModule {
    constructor() {
      Object.freeze(this);
    }
  }

  const app = await NestFactory.createApplicationContext(AppModule, { logger: false });
  try {
    await until(() => isElected);
  } finally {
    await app.close();
  }
});

it('a boot in which a hook never ends is warned of if a job needs a leader', async () => {
  const clock = new SettableClock(Date.UTC(2026, 0, 1));
  const warned: string[] = [];
  let end = (): void => undefined;
  let isWaiting = false;

  @Injectable()
  class Worker implements OnApplicationBootstrap {
    @SingletonCron('0 3 * * *', { key: 'nightly', leader: 'boss' })
    async nightly(): Promise<void> {}

    onApplicationBootstrap(): Promise<void> {
      isWaiting = true;
      return new Promise((resolve) => (end = resolve));
    }
  }

  const ignore = () => undefined;
  const app = await Test.createTestingModule({
    imports: [
      ScheduleModule.forRoot(),
      DistributedLockModule.forRoot({ backend: new MemoryBackend({ clock }) }),
    ],
    providers: [Worker],
  })
    .setLogger({ log: ignore, error: ignore, warn: (text: string) => void warned.push(text) })
    .compile();
  const booting = app.init();
  await until(() => isWaiting);
  await clock.advance(10_000);
  expect(warned).toEqual([expect.stringMatching(/has not booted.*the jobs "nightly"/)]);
  end();
  await booting;
  await app.close();
});

it.each([
  ['is warned of', ['boss'], 1],
  ['is not warned of without elections', [], 0],
])('a boot in which a hook waits for a leader %s', async (_, names, warnings) => {
  const clock = new SettableClock(Date.UTC(2026, 0, 1));
  const warned: string[] = [];
  let give = (): void => undefined;
  let isWaiting = false;

  @Injectable()
  class Impatient implements OnApplicationBootstrap {
    constructor(elections: LeaderElection) {
      for (const name of names) elections.join(name);
    }

    onApplicationBootstrap(): Promise<void> {
      isWaiting = true;
      return new Promise((resolve) => (give = resolve));
    }
  }

  const ignore = () => undefined;
  const app = await Test.createTestingModule({
    imports: [DistributedLockModule.forRoot({ backend: new MemoryBackend({ clock }) })],
    providers: [Impatient],
  })
    .setLogger({ log: ignore, error: ignore, warn: (text: string) => void warned.push(text) })
    .compile();
  const booting = app.init();
  await until(() => isWaiting);
  await clock.advance(9_000);
  expect(warned).toEqual([]);
  await clock.advance(1_000);
  expect(warned).toEqual(
    Array(warnings).fill(expect.stringMatching(/has not booted.*"boss".*waits forever/)),
  );
  give();
  await booting;
  await app.close();
});
