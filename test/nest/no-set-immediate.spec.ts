import { expect, it } from 'vitest';
import { Test } from '@nestjs/testing';

// As in Jest's jsdom: before this library is loaded.
const { setImmediate } = globalThis;
Reflect.deleteProperty(globalThis, 'setImmediate');
const { LockService } = await import('../../lib/index.js');
const { LockTestingModule } = await import('../../lib/testing/index.js');
globalThis.setImmediate = setImmediate;

it('locks work when the library is loaded where setImmediate is missing', async () => {
  const app = await Test.createTestingModule({ imports: [LockTestingModule.forRoot()] }).compile();
  await app.init();
  expect(await app.get(LockService).withLock('key', () => 'ran')).toBe('ran');
  await app.close();
});
