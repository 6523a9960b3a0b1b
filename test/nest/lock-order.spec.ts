import { afterEach, describe, expect, it, vi } from 'vitest';
import { Injectable } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import {
  DistributedLockModule,
  InjectLockService,
  LockConfigError,
  type LockEventMessage,
  LockService,
  Locked,
} from '../../lib/index.js';
import { memoryBackend } from '../../lib/backends/memory/index.js';
import { LockControl, LockTestingModule, type LockTestingModuleOptions } from '../../lib/testing/index.js';

@Injectable()
class Shop {
  constructor(@InjectLockService() private readonly locks: LockService) {}

  @Locked('stock:{0}')
  async sell(product: string, order: string): Promise<string> {
    return await this.locks.withLock(`order:${order}`, () => `${product} sold`);
  }

  @Locked('order:{0.id}')
  async cancel(order: { id: number; product: string }): Promise<string> {
    return await this.restock(order.product);
  }

  @Locked('stock:{0}')
  async restock(product: string): Promise<string> {
    return `${product} restocked`;
  }

  @Locked('account:{0}')
  async transfer(from: string, to: string): Promise<void> {
    await this.locks.withLock(`account:${to}`, { label: 'account:{0}' }, () => undefined);
  }
}

let app: TestingModule;
let warnings: unknown[];

async function boot(options?: LockTestingModuleOptions) {
  app = await Test.createTestingModule({
    imports: [LockTestingModule.forRoot(options)],
    providers: [Shop],
  }).compile();
  warnings = [];
  app.useLogger({ log: () => {}, error: () => {}, warn: (text: unknown) => void warnings.push(text) });
  await app.init();
  return { shop: app.get(Shop), control: app.get(LockControl) };
}

afterEach(() => app.close());

describe('two methods that acquire the same locks in opposite orders', () => {
  it('are logged and published once, when the second one asks for its inner lock', async () => {
    const published: LockEventMessage<'order-inverted'>[] = [];
    const listener = (message: unknown) => published.push(message as LockEventMessage<'order-inverted'>);
    subscribe('nestjs-distributed-lock:order-inverted', listener);
    const { shop } = await boot();
    expect(await shop.sell('pen', '1')).toBe('pen sold');
    expect(warnings).toEqual([]);
    expect(await shop.cancel({ id: 2, product: 'ink' })).toBe('ink restocked');
    expect(await shop.cancel({ id: 3, product: 'cup' })).toBe('cup restocked');
    unsubscribe('nestjs-distributed-lock:order-inverted', listener);
    expect(published).toMatchObject([
      { heldKey: 'order:2', key: 'stock:ink', from: 'order:{0.id}', to: 'stock:{0}', template: 'stock:{0}' },
    ]);
    expect(warnings).toHaveLength(1);
    expect(warnings[0]).toMatch(
      /here "order:\{0\.id\}" before "stock:\{0\}", elsewhere "stock:\{0\}" before "order:\{n\}"/,
    );
    expect(warnings[0]).toMatch(/that held "order:2" acquired "stock:ink":\n {4}at .*[^]*lock-order\.spec/);
    expect(warnings[0]).toMatch(/that held "stock:pen" acquired "order:1":\n {4}at .*[^]*lock-order\.spec/);
  });

  it('do not wait for each other with "throw": the wrong one is rejected before it asks the store', async () => {
    const { shop, control } = await boot({ lockOrder: 'throw' });
    await shop.sell('pen', '1');
    await control.take('stock:ink');
    await expect(shop.cancel({ id: 2, product: 'ink' })).rejects.toThrow(LockConfigError);
    expect(await shop.restock('cup')).toBe('cup restocked');
    expect(warnings).toHaveLength(1);
  });

  it('are found by expectNoInversion(), which names both orders', async () => {
    const { shop, control } = await boot();
    await shop.sell('pen', '1');
    control.expectNoInversion();
    expect(control.lockOrder()).toMatchObject([
      { from: 'stock:{0}', to: 'order:{n}', heldKey: 'stock:pen', key: 'order:1' },
    ]);
    await shop.cancel({ id: 2, product: 'ink' });
    expect(() => control.expectNoInversion()).toThrow(
      /here "order:\{0\.id\}" before "stock:\{0\}", elsewhere "stock:\{0\}" before "order:\{n\}"[^]*lock-order\.spec/,
    );
  });
});

it('two keys of one template are reported, with the call that acquires both', async () => {
  const { shop, control } = await boot();
  await shop.transfer('1', '2');
  expect(() => control.expectNoInversion()).toThrow('withLock(["account:1", "account:2"], work)');
});

it('expectNoInversion() does not pass if it cannot know', async () => {
  const { control } = await boot({ lockOrder: 'off' });
  expect(() => control.expectNoInversion()).toThrow("Expected the option lockOrder to be 'warn' or 'throw'");
  expect(() => control.lockOrder()).toThrow("got 'off'");
  await app.close();
  const { control: full } = await boot();
  await app.get(LockService).withLock('outer', async () => {
    for (let index = 0; index < 1_000; index++)
      await app.get(LockService).withLock(String.fromCodePoint(0x4e00 + index), () => undefined);
  });
  expect(() => full.expectNoInversion()).toThrow('Expected fewer than 1000 pairs of templates');
});

describe('the option lockOrder', () => {
  const isChecked = async (lockOrder?: 'warn' | 'throw' | 'off') => {
    const { shop, control } = await boot(lockOrder && { lockOrder });
    await shop.sell('pen', '1');
    await shop.cancel({ id: 2, product: 'ink' });
    await app.close();
    return warnings.length > 0 && control.lockOrder().length > 0;
  };

  it('is "warn" by default, but "off" in production', async () => {
    expect(await isChecked()).toBe(true);
    vi.stubEnv('NODE_ENV', 'production');
    expect(await isChecked()).toBe(false);
    expect(await isChecked('warn')).toBe(true);
    expect(await isChecked('off')).toBe(false);
  });

  it('has no other values', () => {
    const options = { backend: memoryBackend(), lockOrder: 'error' as 'warn' };
    return expect(
      Test.createTestingModule({ imports: [DistributedLockModule.forRoot(options)] }).compile(),
    ).rejects.toThrow("expected lockOrder to be 'warn' or 'throw' or 'off', got 'error'");
  });
});
