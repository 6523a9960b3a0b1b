import { describe, expect, it } from 'vitest';
import { Injectable, Module, type OnApplicationShutdown } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { MemoryBackend } from '../../lib/backends/memory/index.js';
import {
  DistributedLockModule,
  type Lock,
  LockService,
  LockShutdownError,
  type ShutdownOptions,
} from '../../lib/index.js';
import { Gate } from '../support/gate.js';
import { until } from '../support/until.js';

async function boot(shutdown?: ShutdownOptions) {
  const backend = new MemoryBackend();
  const app = await Test.createTestingModule({
    imports: [DistributedLockModule.forRoot({ backend, ...(shutdown && { shutdown }) })],
  }).compile();
  await app.init();
  return { app, backend, locks: app.get(LockService) };
}

const isHeld = async (backend: MemoryBackend, key: string) => (await backend.inspect(`lock:${key}`)) !== null;

describe('at shutdown', () => {
  it('a waiter gets LockShutdownError, the holder finishes, and its lock is free afterwards', async () => {
    const { app, backend, locks } = await boot();
    const gate = new Gate();
    const started = new Gate();
    const holder = locks.withLock('key', async () => {
      started.open();
      await gate.passed;
      return 'finished';
    });
    await started.passed;
    const waiter = locks.acquire('key');
    const refused = expect(waiter).rejects.toThrow(LockShutdownError);
    const closed = app.close();
    await refused;
    gate.open();
    expect(await holder).toBe('finished');
    await closed;
    expect(await isHeld(backend, 'key')).toBe(false);
  });

  it('does not wait for the work that closes the application, but for all other work', async () => {
    const { app, locks } = await boot({ drainMs: 600_000 });
    const gate = new Gate();
    const order: string[] = [];
    const other = locks.withLock('other', async () => {
      await gate.passed;
      order.push('other ended');
    });
    const closing = locks.withLock('restart', (outer) =>
      locks.withLock('inner', async (inner) => {
        const closed = app.close();
        await until(() => outer.signal.aborted && inner.signal.aborted);
        gate.open();
        await closed;
        order.push('closed');
        return outer.signal.reason as unknown;
      }),
    );
    await other;
    expect(await closing).toBeInstanceOf(LockShutdownError);
    expect(order).toEqual(['other ended', 'closed']);
  });

  it('work that closes the application releases its lock when it ends after that, and closes the store', async () => {
    const { app, backend, locks } = await boot();
    let isClosed = false;
    backend.close = () => Promise.resolve(void (isClosed = true));
    const value = await locks.withLock('restart', async () => {
      await app.close();
      return isClosed;
    });
    expect(value).toBe(false);
    await until(() => isClosed);
    expect(await isHeld(backend, 'restart')).toBe(false);
  });

  it('the lease of work that closes the application and keeps running expires, and the store is closed', async () => {
    const { app, backend, locks } = await boot({ abortGraceMs: 10 });
    let isClosed = false;
    backend.close = () => Promise.resolve(void (isClosed = true));
    const gate = new Gate();
    const work = locks.withLock('restart', { leaseMs: 60_000 }, async () => {
      await app.close();
      await gate.passed;
    });
    await until(() => isClosed);
    expect(await isHeld(backend, 'restart')).toBe(true);
    gate.open();
    await work;
    expect(await isHeld(backend, 'restart')).toBe(true);
  });

  it('no caller is granted a lock any more', async () => {
    const { app, locks } = await boot();
    await app.close();
    await expect(locks.acquire('key')).rejects.toThrow(LockShutdownError);
    await expect(locks.tryAcquire('key')).rejects.toThrow(LockShutdownError);
  });

  it('locks are renewed while work drains', async () => {
    const { app, locks } = await boot();
    const gate = new Gate();
    let drainedLock: Lock | undefined;
    const holder = locks.withLock('key', { leaseMs: 6_000 }, async (lock) => {
      drainedLock = lock;
      await gate.passed;
    });
    await until(() => drainedLock !== undefined);
    const closed = app.close();
    const first = drainedLock!.remainingMs();
    await until(() => drainedLock!.remainingMs() > first); // Only a renewal makes it grow.
    gate.open();
    await holder;
    await closed;
  });

  it('the signal of work that does not end aborts', async () => {
    const { app, locks } = await boot({ drainMs: 20, abortGraceMs: 10_000 });
    const started = new Gate();
    const holder = locks.withLock('key', async ({ signal }) => {
      started.open();
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      return signal.reason as unknown;
    });
    await started.passed;
    await app.close();
    expect(await holder).toBeInstanceOf(LockShutdownError);
  });

  it('the lock of work that keeps running is not released: its lease expires', async () => {
    const { app, backend, locks } = await boot({ drainMs: 10, abortGraceMs: 10 });
    const gate = new Gate();
    const started = new Gate();
    const holder = locks.withLock('key', { leaseMs: 60_000 }, () => {
      started.open();
      return gate.passed;
    });
    await started.passed;
    await app.close();
    expect(await isHeld(backend, 'key')).toBe(true);
    gate.open();
    await holder;
    expect(await isHeld(backend, 'key')).toBe(true);
  });

  it('a lock from acquire() can still be released', async () => {
    const { app, backend, locks } = await boot();
    const lock = await locks.acquire('key');
    const closed = app.close();
    expect(await lock.release()).toBe(true);
    await closed;
    expect(await isHeld(backend, 'key')).toBe(false);
  });

  it('locks can be released before global modules shut down, including those imported later', async () => {
    const order: string[] = [];
    const backend = new (class extends MemoryBackend {
      override close(): Promise<void> {
        order.push('backend closed');
        return super.close();
      }
    })();
    @Injectable()
    class DatabaseConnection implements OnApplicationShutdown {
      onApplicationShutdown(): void {
        order.push('database closed');
      }
    }
    @Module({ providers: [DatabaseConnection] })
    class DatabaseModule {}
    const app: TestingModule = await Test.createTestingModule({
      imports: [DistributedLockModule.forRoot({ backend }), { module: DatabaseModule, global: true }],
    }).compile();
    await app.init();
    await app.close();
    expect(order).toEqual(['backend closed', 'database closed']);
  });

  it('a long wait for work says for which locks', async () => {
    const { app, locks } = await boot({ drainMs: 600_000 });
    const warnings: string[] = [];
    const quiet = () => undefined;
    app.useLogger({ log: quiet, error: quiet, warn: (text: string) => void warnings.push(text) });
    // A key may come from outside, and must not look like another line of the log.
    const lock = await locks.acquire('forgotten\nby whom');
    const closed = app.close();
    await until(() => warnings.length > 0);
    expect(warnings).toEqual([
      expect.stringMatching(/^The shutdown waits for up to 602000 ms, because .*: forgotten\\nby whom\.$/),
    ]);
    await lock.release();
    await closed;
  });

  it('closing twice closes once', async () => {
    const { app } = await boot();
    await app.close();
    await expect(app.close()).resolves.toBeUndefined();
  });
});
