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
} from '../../lib/index.js';

type Decorate = (
  ...given: never[]
) => (target: object, name: string, descriptor: PropertyDescriptor) => unknown;

/** Defines a class whose method is decorated with any arguments, as plain JavaScript allows. */
function define(decorator: unknown, given: readonly unknown[]): void {
  class Report {
    async run(): Promise<void> {}
  }
  const descriptor = Object.getOwnPropertyDescriptor(Report.prototype, 'run')!;
  (decorator as Decorate)(...(given as never[]))(Report.prototype, 'run', descriptor);
}

const decorators = { Locked, SingletonCron, LeaderOnly, OnElected, OnRevoked };

it.each<[keyof typeof decorators, unknown[], string]>([
  ['SingletonCron', [null], 'a cron expression or options, got null'],
  ['SingletonCron', [5], 'a cron expression or options, got 5'],
  ['SingletonCron', [['* * * * *']], 'a cron expression or options, got an array of 1 values'],
  ['SingletonCron', ['* * * * *', null], 'options to be an object, got null'],
  ['SingletonCron', [{ key: null }], 'options.key to be a text'],
  ['Locked', [null], 'the key to be a text, a list of 1 to 32 texts or a function, got null'],
  ['Locked', [undefined], 'the key to be a text, a list of 1 to 32 texts or a function, got undefined'],
  ['Locked', ['key', null], 'options to be an object, got null'],
  ['LeaderOnly', [null], 'got null'],
  ['LeaderOnly', [undefined], 'got undefined'],
  ['LeaderOnly', ['boss', null], 'options to be an object, got null'],
  ['OnElected', [null], 'got null'],
  ['OnElected', ['boss', null], 'options to be an object, got null'],
  ['OnRevoked', [undefined], 'got undefined'],
  ['OnRevoked', ['boss', null], 'options to be an object, got null'],
])(
  '@%s with %j is refused when the class is defined, and the error names what was expected',
  (name, given, expected) => {
    const defining = () => define(decorators[name], given);
    expect(defining).toThrow(LockConfigError);
    expect(defining).toThrow(`@${name} on Report.run: expected `);
    expect(defining).toThrow(expected);
  },
);

it.each(Object.keys(decorators) as (keyof typeof decorators)[])(
  'undefined options are the defaults of @%s',
  (name) => {
    const first = name === 'SingletonCron' ? '* * * * *' : 'name';
    expect(() => define(decorators[name], [first, undefined])).not.toThrow();
  },
);

it.each([InjectLockService, InjectLeaderElection, InjectCronRuns])(
  '$name(null) does not pass definition',
  (inject) => {
    const injecting = () => inject(null as unknown as string);
    expect(injecting).toThrow(LockConfigError);
    expect(injecting).toThrow('got null');
  },
);
