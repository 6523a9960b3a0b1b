import { describe, expect, it } from 'vitest';
import {
  LeaderOnly,
  LockConfigError,
  Locked,
  OnElected,
  OnRevoked,
  SingletonCron,
} from '../../../lib/index.js';

class Base {
  @Locked('buy')
  async buy(): Promise<unknown> {
    return undefined;
  }

  @SingletonCron('* * * * *')
  async tick(): Promise<unknown> {
    return undefined;
  }

  @LeaderOnly('boss')
  async lead(): Promise<unknown> {
    return undefined;
  }
}

const METHODS = ['buy', 'tick', 'lead'] as const;

describe.each(METHODS)('a decorated method that another class has not inherited: %s', (name) => {
  const call = async (instance: unknown) => Base.prototype[name].call(instance as Base);

  it('fails with what to do if it was copied, as by applyMixins', async () => {
    class Derived {
      readonly shop = 'own';
    }
    Object.defineProperty(Derived.prototype, name, Object.getOwnPropertyDescriptor(Base.prototype, name)!);
    const failure = call(new Derived());
    await expect(failure).rejects.toThrow(LockConfigError);
    await expect(failure).rejects.toThrow(
      /on Base\.\w+: expected an instance of its class, got Derived .*extends/,
    );
  });

  it('fails with what to do if it is called without an instance', async () => {
    await expect(call(undefined)).rejects.toThrow(/expected an instance of its class, got undefined/);
  });
});

const NAME = Symbol('tick');

it.each<[string, MethodDecorator]>([
  ['SingletonCron', SingletonCron('* * * * *')],
  ['OnElected', OnElected('boss')],
  ['OnRevoked', OnRevoked('boss')],
])(
  '@%s on a method that is named by a symbol, which Nest does not find, fails when the class is defined',
  (_, decorate) => {
    const define = () => decorate({}, NAME, { value: async () => undefined });
    expect(define).toThrow(LockConfigError);
    expect(define).toThrow(/expected a method with a text as its name, got Symbol\(tick\)/);
  },
);

it('@Locked on a method that is named by a symbol is accepted', () => {
  expect(() => (Locked('key') as MethodDecorator)({}, NAME, { value: async () => undefined })).not.toThrow();
});

it.each([AbortSignal.timeout(600_000), new AbortController().signal])(
  'a signal in the options of @Locked, which all calls would share, fails when the class is defined',
  (signal) => {
    const options = { signal } as object;
    const define = () =>
      (Locked('key', options) as MethodDecorator)({}, 'buy', { value: async () => undefined });
    expect(define).toThrow(LockConfigError);
    expect(define).toThrow(/no option 'signal'; one signal would end the waits of all calls; set waitMs/);
  },
);
