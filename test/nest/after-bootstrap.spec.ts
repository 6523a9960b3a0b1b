import { expect, it } from '@jest/globals';
import { Injectable, Module, type OnApplicationBootstrap } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { MemoryBackend } from '../../lib/backends/memory/index.js';
import { DistributedLockModule, OnElected } from '../../lib/index.js';
import { until } from '../until.js';

it('no leader works before every onApplicationBootstrap has ended, that of the root module too', async () => {
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
