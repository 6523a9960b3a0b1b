import { afterEach, expect, it } from 'vitest';
import { HealthIndicatorService, TerminusModule } from '@nestjs/terminus';
import { Test, type TestingModule } from '@nestjs/testing';
import { memoryBackend } from '../../lib/backends/memory/index.js';
import { DistributedLockModule, LockConfigError, getLockServiceToken } from '../../lib/index.js';
import { LockHealthIndicator } from '../../lib/terminus/index.js';
import { LockControl, LockTestingModule } from '../../lib/testing/index.js';

let app: TestingModule | undefined;
afterEach(() => app?.close());

const boot = async (imports: NonNullable<Parameters<typeof Test.createTestingModule>[0]['imports']>) => {
  app = await Test.createTestingModule({
    imports: [TerminusModule, ...imports],
    providers: [
      LockHealthIndicator,
      {
        provide: 'named',
        useFactory: (...parts: ConstructorParameters<typeof LockHealthIndicator>) =>
          new LockHealthIndicator(...parts),
        inject: [{ token: getLockServiceToken('other'), optional: true }, HealthIndicatorService],
      },
    ],
  }).compile();
  return app.init();
};

it('the health follows the store of a test', async () => {
  const { locks } = await (
    await boot([LockTestingModule.forRoot()])
  )
    .get(LockHealthIndicator)
    .isHealthy('locks');
  expect(locks).toEqual({ status: 'up' });
  app!.get(LockControl).disconnect();
  const health = await app!.get(LockHealthIndicator).isHealthy('locks');
  expect(health.locks).toMatchObject({ status: 'down', message: expect.stringContaining('disconnect()') });
});

it('an application that is shutting down is not ready, whatever its store says', async () => {
  await boot([DistributedLockModule.forRoot({ backend: memoryBackend() })]);
  const indicator = app!.get(LockHealthIndicator);
  await app!.close();
  expect((await indicator.isHealthy('locks')).locks).toMatchObject({
    status: 'down',
    message: expect.stringContaining('shutting down'),
  });
});

it('each module has a health of its own', async () => {
  await boot([
    DistributedLockModule.forRoot({ backend: memoryBackend() }),
    DistributedLockModule.forRoot({
      name: 'other',
      backend: Object.assign(memoryBackend(), { inspect: () => new Promise<never>(() => undefined) }),
    }),
  ]);
  const [first, other] = [LockHealthIndicator, 'named'].map((token) => app!.get<LockHealthIndicator>(token));
  expect((await first!.isHealthy('locks')).locks.status).toBe('up');
  expect((await other!.isHealthy('locks', { timeoutMs: 20 })).locks.status).toBe('down');
});

it.each([{ timeoutMs: 0 }, { timeoutMs: '1s' }, { timeout: 1 }])(
  'the options %j are refused',
  async (options) => {
    const indicator = (await boot([LockTestingModule.forRoot()])).get(LockHealthIndicator);
    await expect(indicator.isHealthy('locks', options as object)).rejects.toBeInstanceOf(LockConfigError);
  },
);
