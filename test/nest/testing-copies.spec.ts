import { describe, expect, it, vi } from 'vitest';
import { Test } from '@nestjs/testing';
import { LockControl, LockTestingModule } from '../../lib/testing/index.js';

// As Jest does between two specs of one file: the first copy stays known to the process.
vi.resetModules();
const { LockService, SingletonCron } = await import('../../lib/index.js');
const second = await import('../../lib/testing/index.js');

class Report {
  @SingletonCron('0 3 * * *', { key: 'report' })
  send() {
    return 'sent';
  }
}

async function boot() {
  const imports = [second.LockTestingModule.forRoot({ lockOrder: 'warn' })];
  const app = await Test.createTestingModule({ imports, providers: [Report] }).compile();
  await app.init();
  return { app, locks: app.get(LockService), control: app.get(LockControl) };
}

describe('the LockControl of the second copy of the package', () => {
  it('is that of the first one', () => {
    expect(second.LockTestingModule).not.toBe(LockTestingModule);
    expect(second.LockControl).toBe(LockControl);
  });

  it('fires a job', async () => {
    const { app, control } = await boot();
    expect(await control.fire('report')).toBe('sent');
    await app.close();
  });

  it('makes a lock lost', async () => {
    const { app, locks, control } = await boot();
    const lock = await locks.acquire('key');
    await control.lose('key');
    expect(lock.signal.aborted).toBe(true);
    await app.close();
  });

  it('knows the orders of locks', async () => {
    const { app, locks, control } = await boot();
    await locks.withLock('outer', () => locks.withLock('inner', () => undefined));
    expect(control.lockOrder()).toHaveLength(1);
    await app.close();
  });
});
