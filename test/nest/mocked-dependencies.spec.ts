import { expect, it, vi } from 'vitest';
import { Inject, Injectable } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { memoryBackend } from '../../lib/backends/memory/index.js';
import {
  type CronRun,
  DistributedLockModule,
  LeaderOnly,
  LockTimeoutError,
  Locked,
  SingletonCron,
} from '../../lib/index.js';
import { LockControl, LockTestingModule } from '../../lib/testing/index.js';

@Injectable()
class Shop {
  constructor(@Inject('payments') private readonly payments: { pay: () => string }) {}

  @Locked('product:{0}', { waitMs: 0 })
  async buy(_product: string): Promise<string> {
    return this.payments.pay();
  }

  @SingletonCron('0 3 * * *', { key: 'report' })
  async report({ attempt }: CronRun): Promise<string> {
    return `${this.payments.pay()} in run ${attempt}`;
  }

  @LeaderOnly('shop', { otherwise: 'throw' })
  async lead(): Promise<string> {
    return this.payments.pay();
  }
}

const mocker = () => ({ pay: vi.fn(() => 'paid'), withLock: vi.fn() });

it.each([
  ['LockTestingModule', LockTestingModule.forRoot()],
  ['DistributedLockModule', DistributedLockModule.forRoot({ backend: memoryBackend() })],
])('useMocker() mocks other dependencies, and leaves the locks of %s alone', async (_, locks) => {
  const app = await Test.createTestingModule({ imports: [locks], providers: [Shop] })
    .useMocker(mocker)
    .compile();
  await app.init();
  expect(await app.get(Shop).buy('tea')).toBe('paid');
  await vi.waitFor(async () => expect(await app.get(Shop).lead()).toBe('paid'));
  await app.close();
});

it('useMocker() leaves LockControl and jobs alone', async () => {
  const app = await Test.createTestingModule({ imports: [LockTestingModule.forRoot()], providers: [Shop] })
    .useMocker(mocker)
    .compile();
  await app.init();
  await app.get(LockControl).take('product:tea');
  await expect(app.get(Shop).buy('tea')).rejects.toThrow(LockTimeoutError);
  expect(await app.get(LockControl).fire('report')).toBe('paid in run 1');
  await app.close();
});

it('useMocker() together with overrideModule() leaves the replaced locks alone', async () => {
  const app = await Test.createTestingModule({
    imports: [DistributedLockModule.forRoot({ backend: memoryBackend() })],
    providers: [Shop],
  })
    .overrideModule(DistributedLockModule)
    .useModule(LockTestingModule.forRoot())
    .useMocker(mocker)
    .compile();
  await app.init();
  await app.get(LockControl).take('product:tea');
  await expect(app.get(Shop).buy('tea')).rejects.toThrow(LockTimeoutError);
  await app.close();
});

it('useMocker() without LockTestingModule mocks the locks too', async () => {
  const app = await Test.createTestingModule({ providers: [Shop] })
    .useMocker(mocker)
    .compile();
  await app.init();
  expect(await app.get(Shop).buy('tea')).toBeUndefined();
  await app.close();
});
