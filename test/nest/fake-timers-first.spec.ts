import { afterAll, expect, it, vi } from 'vitest';
import { Test } from '@nestjs/testing';

// As `fakeTimers: { enableGlobally: true }` does: before this library is loaded.
vi.useFakeTimers();
const { LockService } = await import('../../lib/index.js');
const { LockControl, LockTestingModule } = await import('../../lib/testing/index.js');
afterAll(() => void vi.useRealTimers());

it('locks work when the library is loaded under fake timers', async () => {
  const app = await Test.createTestingModule({ imports: [LockTestingModule.forRoot()] }).compile();
  await app.init();
  const [locks, control] = [app.get(LockService), app.get(LockControl)];
  expect(await locks.withLock('key', () => 'ran')).toBe('ran');
  await control.take('key');
  const ran = locks.withLock('key', () => 'ran later');
  await control.free('key');
  expect(await ran).toBe('ran later');
  await locks.acquire('held');
  await app.close();
});
