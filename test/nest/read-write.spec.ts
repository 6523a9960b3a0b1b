import { afterEach, describe, expect, it } from 'vitest';
import { Injectable } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import {
  LockConfigError,
  LockLostError,
  LockReentryError,
  LockService,
  LockTimeoutError,
  Locked,
  currentLock,
} from '../../lib/index.js';
import { LockControl, LockTestingModule } from '../../lib/testing/index.js';

@Injectable()
class Catalog {
  constructor(private readonly locks: LockService) {}

  @Locked('catalog:{0}', { mode: 'read', waitMs: 0 })
  async find(_id: string, work: () => unknown = () => currentLock()?.key): Promise<unknown> {
    return work();
  }

  @Locked('catalog:{0}', { mode: 'write', waitMs: 0 })
  async save(_id: string, work: () => unknown = () => currentLock()?.fencingToken): Promise<unknown> {
    return work();
  }

  @Locked('catalog:{0}', { mode: 'write', onContention: 'skip' })
  async saveUnlessBusy(_id: string): Promise<boolean | undefined> {
    return true;
  }

  @Locked('catalog:{0}', { mode: 'read', reentrant: true })
  async findAgain(_id: string): Promise<boolean | undefined> {
    return currentLock()?.isValid();
  }

  readBoth(): Promise<unknown> {
    return this.locks.withLock('catalog:1', { mode: 'read' }, () => this.find('1'));
  }
}

let testing: TestingModule | undefined;
afterEach(() => testing?.close());

async function start() {
  testing = await Test.createTestingModule({
    imports: [LockTestingModule.forRoot()],
    providers: [Catalog],
  }).compile();
  await testing.init();
  return {
    catalog: testing.get(Catalog),
    control: testing.get(LockControl),
    locks: testing.get(LockService),
  };
}

describe('a method with a mode', () => {
  it('reads beside other readers, and writes alone', async () => {
    const { catalog, control } = await start();
    expect(await catalog.find('1')).toBe('catalog:1');
    expect(await catalog.save('1')).toBeTypeOf('bigint');
    await control.take('catalog:1', { mode: 'read' });
    expect(await catalog.find('1')).toBe('catalog:1');
    await expect(catalog.save('1')).rejects.toBeInstanceOf(LockTimeoutError);
    expect(await catalog.saveUnlessBusy('1')).toBeUndefined();
    await control.free('catalog:1');
    expect(await catalog.save('1')).toBeTypeOf('bigint');
    await control.take('catalog:1', { mode: 'write' });
    await expect(catalog.find('1')).rejects.toBeInstanceOf(LockTimeoutError);
    await control.free('catalog:1');
    expect(await catalog.saveUnlessBusy('1')).toBe(true);
  });

  it.each<[Parameters<LockControl['take']>[1], string]>([
    [{ permits: 0 }, 'a whole number from 1 to 64'],
    [{ permits: 65 }, 'a whole number from 1 to 64'],
    [{ permits: 1, mode: 'read' }, 'expected options to have permits or a mode, got both'],
  ])('cannot be tested with wrong options: %j', async (options, text) => {
    const { control } = await start();
    await expect(control.take('catalog:1', options)).rejects.toThrow(text);
  });

  it('does not wait for its own caller', async () => {
    const { catalog } = await start();
    await expect(catalog.find('1', () => catalog.save('1'))).rejects.toThrow(
      /already holds "catalog:1" to read/,
    );
    await expect(catalog.save('1', () => catalog.find('1'))).rejects.toThrow(
      /already holds "catalog:1" to write/,
    );
    await expect(catalog.readBoth()).rejects.toBeInstanceOf(LockReentryError);
    expect(await catalog.find('1', () => catalog.findAgain('1'))).toBe(true);
  });

  it('loses the lock in either mode', async () => {
    const { catalog, control } = await start();
    for (const call of [catalog.find, catalog.save]) {
      const result = call.call(catalog, '1', () => control.lose('catalog:1'));
      await expect(result).rejects.toBeInstanceOf(LockLostError);
    }
  });

  it('is refused when the class is defined if the mode is unknown, or has permits too', () => {
    for (const options of [{ mode: 'upgrade' as 'read' }, { mode: 'read', permits: 2 }] as const)
      expect(() => Locked('key', options)({}, 'method', { value: async () => undefined })).toThrow(
        LockConfigError,
      );
  });
});
