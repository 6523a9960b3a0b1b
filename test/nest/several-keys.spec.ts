import { afterEach, describe, expect, it } from 'vitest';
import { Injectable } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { LockConfigError, LockTimeoutError, Locked, currentLock } from '../../lib/index.js';
import { LockControl, LockTestingModule } from '../../lib/testing/index.js';

interface Transfer {
  readonly from: string;
  readonly to: string;
}

const keysNow = () => currentLock()?.keys;

@Injectable()
class Accounts {
  @Locked(['account:{0}', 'account:{1}'], { waitMs: 0 })
  async transfer(_from: string, _to: string): Promise<unknown> {
    return keysNow();
  }

  @Locked(({ from, to }: Transfer) => [`account:${from}`, `account:${to}`])
  async byFunction(_transfer: Transfer): Promise<unknown> {
    return keysNow();
  }

  @Locked(['account:{0}', 'ledger'], { onContention: 'skip' })
  async skip(_account: string): Promise<unknown> {
    return keysNow();
  }
}

let testing: TestingModule | undefined;
afterEach(() => testing?.close());

async function start() {
  testing = await Test.createTestingModule({
    imports: [LockTestingModule.forRoot()],
    providers: [Accounts],
  }).compile();
  return { accounts: testing.get(Accounts), control: testing.get(LockControl) };
}

describe('a method with several keys', () => {
  it('runs under all of them, from templates or from a function', async () => {
    const { accounts } = await start();
    expect(await accounts.transfer('2', '1')).toEqual(['account:1', 'account:2']);
    expect(await accounts.transfer('1', '1')).toEqual(['account:1']);
    expect(await accounts.byFunction({ from: 'b', to: 'a' })).toEqual(['account:a', 'account:b']);
  });

  it('waits, times out and skips as one with a single key', async () => {
    const { accounts, control } = await start();
    await control.take('account:2');
    await control.take('ledger');
    await expect(accounts.transfer('1', '2')).rejects.toBeInstanceOf(LockTimeoutError);
    expect(await accounts.skip('1')).toBeUndefined();
    await control.free('ledger');
    expect(await accounts.skip('1')).toEqual(['account:1', 'ledger']);
  });
});

it.each([[[]], [['']], [['key', 1]], [Array.from({ length: 33 }, () => 'key')]])(
  'refuses the keys %j when the class is defined',
  (keys) => {
    expect(() => Locked(keys as string[])({}, 'method', { value: async () => undefined })).toThrow(
      LockConfigError,
    );
  },
);
