import { afterEach, describe, expect, it } from 'vitest';
import { Injectable, type Type } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { type LockedOptions, LockConfigError, Locked } from '../../lib/index.js';
import { LockTestingModule } from '../../lib/testing/index.js';

let testing: TestingModule | undefined;
afterEach(() => testing?.close().catch(() => undefined));

/** A provider whose only method is locked. */
function locked(key: Parameters<typeof Locked>[0], options: LockedOptions = {}): Type {
  @Injectable()
  class Pdfs {
    @Locked(key as string, options)
    async render(_order: string): Promise<void> {}
  }
  return Pdfs;
}

async function boot(...providers: Type[]): Promise<void> {
  testing = await Test.createTestingModule({ imports: [LockTestingModule.forRoot()], providers }).compile();
  await testing.init();
}

describe('one key template in two kinds', () => {
  const permits = locked('pdf:{0}', { permits: 5 });
  const mode = locked('pdf:{0}', { mode: 'read' });

  it.each([
    ['plain and with permits', locked('pdf:{0}'), permits],
    ['with permits and with a mode', permits, mode],
    ['with a mode and in a list of keys', mode, locked(['order:{0}', 'pdf:{0}'])],
  ])('does not boot: %s', async (_, one, other) => {
    const failure = await boot(one, other).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(LockConfigError);
    expect((failure as Error).message).toMatch(
      /key .pdf:\{0\}.*@Locked on Pdfs\.render \(.*@Locked on Pdfs\.render \(/,
    );
  });

  it.each([
    ['one kind', [permits, locked('pdf:{0}', { permits: 3 })]],
    ['a reader and a writer', [mode, locked('pdf:{0}', { mode: 'write' })]],
    ['keys of functions, which are unknown at boot', [permits, locked((order: string) => `pdf:${order}`)]],
  ])('boots: %s', async (_, providers) => {
    await expect(boot(...providers)).resolves.toBeUndefined();
  });
});
