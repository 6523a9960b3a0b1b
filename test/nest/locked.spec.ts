import { afterEach, describe, expect, it } from 'vitest';
import { HttpException, Injectable, NotFoundException } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { of } from 'rxjs';
import {
  LockConfigError,
  LockLostError,
  LockService,
  LockTimeoutError,
  Locked,
  currentLock,
} from '../../lib/index.js';
import { LockControl, LockTestingModule } from '../../lib/testing/index.js';
import { Gate } from '../support/gate.js';

interface Order {
  id: unknown;
  customer?: { name: string };
}

@Injectable()
class OrderService {
  readonly gate = new Gate();
  readonly seen: string[] = [];

  @Locked('report')
  async report(): Promise<string> {
    return this.#see();
  }

  @Locked('order:{0.id}:{0.customer.name}')
  async template(order: Order): Promise<string> {
    return this.#see(order);
  }

  @Locked('pair:{0}:{1}')
  async pair(first: unknown, second: unknown): Promise<string> {
    return this.#see(first, second);
  }

  @Locked((order: Order) => `order:${String(order.id)}`)
  async byFunction(order: Order, note: string): Promise<string> {
    return this.#see(order, note);
  }

  @Locked('held', { waitMs: 0 })
  async hold(): Promise<void> {
    await this.gate.passed;
  }

  @Locked('held', { onContention: 'skip' })
  async skipIfHeld(): Promise<string | undefined> {
    return 'ran';
  }

  @Locked('outer', { onContention: 'skip' })
  async waitsInside(locks: LockService): Promise<void> {
    await locks.acquire('held', { waitMs: 0 });
  }

  @Locked('failing')
  async fail(error: unknown): Promise<void> {
    throw error;
  }

  @Locked('valued')
  async give<T>(value: T): Promise<T> {
    return value;
  }

  @Locked('stream')
  async stream(): Promise<unknown> {
    return of(1);
  }

  @Locked('again')
  async again(times: number): Promise<number> {
    return times === 0 ? 0 : this.again(times - 1);
  }

  @Locked('joined', { reentrant: true })
  async join(times: number): Promise<bigint[]> {
    const token = currentLock()!.fencingToken;
    return times === 0 ? [token] : [token, ...(await this.join(times - 1))];
  }

  #see(..._: unknown[]): string {
    return currentLock()!.key;
  }
}

describe('a method under @Locked', () => {
  let app: TestingModule;
  const boot = async () => {
    app = await Test.createTestingModule({
      imports: [LockTestingModule.forRoot()],
      providers: [OrderService],
    }).compile();
    await app.init();
    return { orders: app.get(OrderService), locks: app.get(LockService), control: app.get(LockControl) };
  };
  afterEach(() => app.close());

  it('runs under a literal key', async () => {
    const { orders } = await boot();
    expect(await orders.report()).toBe('report');
  });

  it('runs under a template of its arguments', async () => {
    const { orders } = await boot();
    expect(await orders.template({ id: 42, customer: { name: 'Ada' } })).toBe('order:42:Ada');
  });

  it('never gives two different calls the same key', async () => {
    const { orders } = await boot();
    expect(await orders.pair('a:b', 'c')).not.toBe(await orders.pair('a', 'b:c'));
  });

  it('runs under the key that the key function returns', async () => {
    const { orders } = await boot();
    expect(await orders.byFunction({ id: 7n }, 'note')).toBe('order:7');
  });

  it.each([
    ['is missing', {}],
    ['is null', { id: null }],
    ['is an object', { id: { nested: true } }],
    ['is not a number', { id: NaN }],
  ])('is refused when the value of a placeholder %s', async (_, order) => {
    const { orders } = await boot();
    const refused = orders.template(order as Order);
    await expect(refused).rejects.toThrow(LockConfigError);
    await expect(refused).rejects.toThrow(/@Locked on OrderService\.template.*\{0\.id\}/);
  });

  it('throws LockTimeoutError when the lock stays taken', async () => {
    const { orders, control } = await boot();
    await control.take('held');
    await expect(orders.hold()).rejects.toThrow(LockTimeoutError);
  });

  it('returns undefined without running when it skips', async () => {
    const { orders, control } = await boot();
    await control.take('held');
    expect(await orders.skipIfHeld()).toBeUndefined();
    await control.free('held');
    expect(await orders.skipIfHeld()).toBe('ran');
  });

  it('does not skip after a timeout of its own work', async () => {
    const { orders, locks, control } = await boot();
    await control.take('held');
    await expect(orders.waitsInside(locks)).rejects.toThrow(LockTimeoutError);
  });

  it('passes its exception on, the same object', async () => {
    const { orders } = await boot();
    const error = new NotFoundException('no such order');
    await expect(orders.fail(error)).rejects.toBe(error);
    await expect(orders.fail('just a text')).rejects.toBe('just a text');
    expect(error).toBeInstanceOf(HttpException);
  });

  it('passes its value on, the same object', async () => {
    const { orders } = await boot();
    const value = { deep: [1, 2] };
    expect(await orders.give(value)).toBe(value);
  });

  it('passes its value on when the release fails', async () => {
    const { orders, control } = await boot();
    const held = orders.hold();
    await new Promise(setImmediate);
    control.disconnect();
    orders.gate.open();
    await expect(held).resolves.toBeUndefined();
  });

  it('throws LockLostError when it returned, but lost the lock meanwhile', async () => {
    const { orders, control } = await boot();
    const held = orders.hold();
    await new Promise(setImmediate);
    await control.lose('held');
    orders.gate.open();
    await expect(held).rejects.toThrow(LockLostError);
  });

  it('refuses an Observable, as the work of withLock does', async () => {
    const { orders, locks } = await boot();
    await expect(orders.stream()).rejects.toThrow(/got an Observable/);
    await expect(locks.withLock('route', () => of(1))).rejects.toThrow(
      /withLock\('route'\): .* got an Observable/,
    );
  });

  it('does not wait for itself', async () => {
    const { orders } = await boot();
    expect(await orders.again(0)).toBe(0);
    await expect(orders.again(1)).rejects.toMatchObject({ code: 'LOCK_REENTRY', key: 'again' });
  });

  it('re-enters the outer lock if it is reentrant', async () => {
    const { orders, locks } = await boot();
    const [outer, ...inner] = await orders.join(2);
    expect(inner).toEqual([outer, outer]);
    expect(await locks.inspect('joined')).toBeNull();
  });
});

describe('@Locked refuses when the class is defined', () => {
  const define = (key: string | string[], options?: object | number | null) => () => {
    class Wrong {
      @Locked(key, options as object)
      async method(_first?: unknown, _second?: unknown): Promise<void> {}
    }
    return Wrong;
  };

  it.each([
    ['an empty key', '', undefined, /@Locked on Wrong\.method: expected the key to be a text/],
    [
      'a key that is missing',
      undefined as unknown as string,
      undefined,
      /Write it like @Locked\('order:\{0\}'\)/,
    ],
    ['a second key', 'a', 'b' as unknown as object, /pass a list: @Locked\(\['a', 'b'\]\)/],
    ['options that are null', 'key', null, /options to be an object, got null/],
    ['a name as placeholder', 'order:{id}', undefined, /placeholders like \{0\}/],
    ['an open placeholder', 'order:{0', undefined, /placeholders like \{0\}/],
    ['placeholders side by side', '{0}{1}', undefined, /punctuation mark/],
    ['placeholders with only letters between', '{0}x{1}', undefined, /punctuation mark/],
    ['a wait that is a text', 'key', { waitMs: '5s' }, /waitMs.*'5s'/],
    ['a lease that is a fraction', 'key', { leaseMs: 1000.5 }, /leaseMs.*1000\.5/],
    ['an unknown option', 'key', { ttl: 5 }, /no option 'ttl'/],
    ['milliseconds', 'key', 5_000, /to be an object, got 5000; write \{ leaseMs: 5000 \}/],
    ['an unknown way to contend', 'key', { onContention: 'ignore' }, /'throw' or 'skip'/],
    ['several keys with permits', ['a', 'b'], { permits: 2 }, /one key for a lock with permits, got a list/],
    ['several keys with a mode', ['a', 'b'], { mode: 'read' }, /one key for a lock with a mode, got a list/],
  ])('%s', (_, key, options, message) => {
    expect(define(key, options)).toThrow(LockConfigError);
    expect(define(key, options)).toThrow(message);
  });

  it('an unknown option, and does not name signal among those that it knows', () => {
    expect(define('key', { ttl: 5 })).toThrow(/it knows waitMs, leaseMs, renew, reentrant, permits/);
    expect(define('key', { ttl: 5 })).not.toThrow(/signal/);
  });

  it('a static method', () => {
    const decorate = Locked('key') as (target: object, name: string, descriptor: PropertyDescriptor) => void;
    const Static = (): void => undefined;
    expect(() => decorate(Static, 'method', { value: async () => undefined })).toThrow(
      /@Locked on Static\.method: .*static/,
    );
  });

  it.each<[string, unknown[], RegExp]>([
    [
      'a getter',
      [OrderService.prototype, 'total', { get: () => 1 }],
      /@Locked on OrderService\.total: .*got a getter\. Make it an async method/,
    ],
    [
      'a property',
      [OrderService.prototype, 'buy', undefined],
      /@Locked on OrderService\.buy: .*got a property\. Make it an async method/,
    ],
    ['a class', [OrderService], /@Locked on the class OrderService: .*Put it on a method/],
    [
      'a parameter of a constructor',
      [OrderService, undefined, 0],
      /@Locked on the class OrderService: .*Put it on a method/,
    ],
    ['a static property', [OrderService, 'buy', undefined], /@Locked on OrderService\.buy: .*static/],
    [
      'a method, by a compiler with standard decorators',
      [async () => undefined, { kind: 'method', name: 'pay', static: false }],
      /^@Locked on pay: .*got a standard one\. Set experimentalDecorators: true/,
    ],
  ])('%s', (_, place, message) => {
    const decorate = Locked('key') as (...args: unknown[]) => void;
    expect(() => decorate(...place)).toThrow(LockConfigError);
    expect(() => decorate(...place)).toThrow(message);
  });

  it.each([
    [undefined, /got undefined/],
    ['', /got ''/],
    [['a', undefined], /got an array of 2 values/],
    [Promise.resolve('a'), /got Promise/],
  ])('a key function that returns %o, and names the method', async (key, message) => {
    @Injectable()
    class Shop {
      @Locked(() => key as string)
      async buy(): Promise<void> {}
    }
    const app = await Test.createTestingModule({
      imports: [LockTestingModule.forRoot()],
      providers: [Shop],
    }).compile();
    await app.init();
    const bought = app.get(Shop).buy();
    await expect(bought).rejects.toThrow(LockConfigError);
    await expect(bought).rejects.toThrow(message);
    await expect(bought).rejects.toThrow(/@Locked on Shop\.buy: expected the key function to return/);
    await app.close();
  });

  it.each([
    ['a path with brackets', 'order:{0.items[0]}', /\{0\.items\.0\}/],
    ['a placeholder of a template literal', 'order:${0}', /Leave out the \$/],
    ['a placeholder beyond the parameters', 'order:{5}', /one of the 2 parameters.*got \{5\}/],
  ])('%s', (_, key, message) => {
    expect(define(key)).toThrow(LockConfigError);
    expect(define(key)).toThrow(message);
  });

  it('no placeholder that defaults or rest parameters may hide', () => {
    const decorate = Locked('{3}') as (target: object, name: string, descriptor: PropertyDescriptor) => void;
    class Hiding {
      async rest(..._ids: number[]): Promise<void> {}
      async defaults(_a: number, _b = 1, _c = 2, _d = 3): Promise<void> {}
    }
    for (const name of ['rest', 'defaults']) {
      const descriptor = Object.getOwnPropertyDescriptor(Hiding.prototype, name)!;
      expect(() => decorate(Hiding.prototype, name, descriptor)).not.toThrow();
    }
  });

  it('the decorator without parentheses, also on a static method', () => {
    const bare = Locked as unknown as (...args: unknown[]) => void;
    class Bare {
      readonly name = 'bare';
    }
    const descriptor = { value: async () => undefined };
    expect(() => bare(Bare.prototype, 'method', descriptor)).toThrow(
      /@Locked on Bare\.method: .*@Locked\(…\)/,
    );
    expect(() => bare(Bare, 'method', descriptor)).toThrow(/@Locked on Bare\.method: .*@Locked\(…\)/);
  });
});
