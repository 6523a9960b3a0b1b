import { describe, expect, it } from 'vitest';
import { Injectable } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { LeaderOnly, LockConfigError, OnElected } from '../../lib/index.js';
import { LockTestingModule } from '../../lib/testing/index.js';
import { until } from '../support/until.js';

@Injectable()
class Dispatcher {
  elected = 0;

  @OnElected('dispatcher')
  async begin(): Promise<void> {
    this.elected += 1;
  }

  @LeaderOnly('dispatcher')
  async flush(): Promise<string | undefined> {
    return 'flushed';
  }

  @LeaderOnly('dispatcher', { otherwise: 'throw' })
  async flushOrThrow(): Promise<string> {
    return 'flushed';
  }
}

const compile = () =>
  Test.createTestingModule({ imports: [LockTestingModule.forRoot()], providers: [Dispatcher] }).compile();

describe('an election under LockTestingModule', () => {
  it('elects the application, which then runs methods for leaders', async () => {
    const app = await compile();
    await app.init();
    const dispatcher = app.get(Dispatcher);
    await until(() => dispatcher.elected === 1);
    expect(await dispatcher.flush()).toBe('flushed');
    expect(await dispatcher.flushOrThrow()).toBe('flushed');
    await app.close();
    expect(await dispatcher.flush()).toBeUndefined();
  });

  it.each(['flush', 'flushOrThrow'] as const)(
    'has not begun after compile() alone: %s says so',
    async (name) => {
      const app = await compile();
      const call = app.get(Dispatcher)[name]();
      await expect(call).rejects.toThrow(LockConfigError);
      await expect(call).rejects.toThrow(/Dispatcher\.flush.* before .*await app\.init\(\)/);
      await app.close();
    },
  );
});
