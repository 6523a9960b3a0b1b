import { expect, it } from 'vitest';
import {
  InjectCronRuns,
  InjectLeaderElection,
  InjectLockService,
  LeaderOnly,
  LockConfigError,
  Locked,
  OnElected,
  OnRevoked,
  SingletonCron,
} from '../../../lib/index.js';

class Shop {
  readonly name = 'shop';
}

const method = { value: async () => undefined };

it.each(Object.entries({ Locked, SingletonCron, LeaderOnly, OnElected, OnRevoked }))(
  '@%s without its call fails when the class is defined',
  (name, decorator) => {
    for (const target of [Shop.prototype, Shop]) {
      const define = () => (decorator as (...args: unknown[]) => unknown)(target, 'buy', method);
      expect(define).toThrow(LockConfigError);
      expect(define).toThrow(
        `@${name} on Shop.buy: expected a call, got the decorator itself. Write @${name}(…).`,
      );
    }
  },
);

it.each(Object.entries({ InjectLockService, InjectLeaderElection, InjectCronRuns }))(
  '@%s without its call fails when the class is defined',
  (name, decorator) => {
    const on =
      (...args: unknown[]) =>
      () =>
        (decorator as (...args: unknown[]) => unknown)(...args);
    expect(on(Shop.prototype, 'locks', undefined)).toThrow(`@${name} on Shop.locks: expected a call`);
    expect(on(Shop, undefined, 0)).toThrow(`@${name} on Shop.constructor: expected a call`);
  },
);
