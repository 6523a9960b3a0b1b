import { hostname } from 'node:os';
import type { InjectionToken, ModuleMetadata, OptionalFactoryDependency, Type } from '@nestjs/common';
import type { LockBackend } from './core/backend.js';
import { formatValue } from './core/format.js';
import type { LockOrderMode } from './core/lock-order.js';
import { OptionErrors, unsetHint, unsetVariableHint } from './core/option-errors.js';
import {
  BUILT_IN_LOCK_OPTIONS,
  BUILT_IN_SHUTDOWN_OPTIONS,
  type LockOptions,
  type ResolvedLockOptions,
  type ShutdownOptions,
  collectLockErrors,
  collectLeaseLimitErrors,
  resolveLockOptions,
} from './core/options.js';
import { type JobOverride, collectOverrideErrors } from './schedule/registry/job-overrides.js';

export interface DistributedLockModuleOptions {
  /** Where locks are stored: `redisBackend(…)`, `typeormBackend(…)`, `memoryBackend(…)` or your own. */
  backend: LockBackend;
  /**
   * The prefix of every key in the store: set it to the name of your application. All replicas of an application need
   * the same value. Two applications with the same namespace on one store share all locks, so their jobs and elections
   * with the same name block each other. If the option is given, but `undefined`, the boot fails: probably an environment
   * variable is not set.
   *
   * @default 'lock'
   */
  namespace?: string;
  /**
   * The name of this module, if the application has several. Inject its service with `@InjectLockService(name)`. On the
   * same store, set a different `namespace` for each module. Otherwise a call that holds a lock of one module and
   * acquires the same key through the other waits for itself.
   */
  name?: string;
  /**
   * Whether every module sees the service without importing this one.
   *
   * @default true
   */
  isGlobal?: boolean;
  /** Default options of all locks. The options of a decorator or a call take precedence. */
  defaults?: LockOptions;
  /**
   * The name of this process in `inspect()`, events, logs and the history of jobs.
   *
   * @default `${hostname}:${pid}`
   */
  instance?: string;
  /** How long shutdown waits for work under locks. */
  shutdown?: ShutdownOptions;
  /**
   * Whether the boot fails if the store cannot be used. If `false`, the reason is logged, the application boots, and
   * acquiring a lock fails until the store responds.
   *
   * @default false
   */
  failOnBoot?: boolean;
  /**
   * Whether locks that are acquired one inside the other are checked for their order, and what happens if two calls
   * acquire them in opposite orders, so that they could wait for each other. `'warn'` logs a warning once for each pair
   * of templates. With `'throw'`, each such call also rejects with `LockConfigError`, before it waits or sends anything.
   * `'off'` checks nothing. Locks of different modules are not compared.
   *
   * @default 'warn', or 'off' if `NODE_ENV` is `production`
   */
  lockOrder?: LockOrderMode;
  /**
   * Options of jobs by their keys, in place of those in their decorators. So a schedule or an off switch can come from
   * `ConfigService`. An option that is `undefined` leaves that of the decorator. Read at boot, which fails if an entry
   * names no job with `@SingletonCron`.
   */
  jobs?: Readonly<Record<string, JobOverride>> | undefined;
}

/** What the factory of `forRootAsync` returns: all options except those that must be known before it runs. */
export type DistributedLockFactoryOptions = Omit<DistributedLockModuleOptions, 'name' | 'isGlobal'>;

export interface DistributedLockOptionsFactory {
  createDistributedLockOptions(): DistributedLockFactoryOptions | Promise<DistributedLockFactoryOptions>;
}

/** Exactly one of `useFactory`, `useClass` and `useExisting`. */
export interface DistributedLockModuleAsyncOptions extends Pick<ModuleMetadata, 'imports'> {
  name?: string;
  /** @default true */
  isGlobal?: boolean;
  inject?: (InjectionToken | OptionalFactoryDependency)[];
  // The parameters are those that `inject` names, as in Nest's own FactoryProvider.
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  useFactory?: (...args: any[]) => DistributedLockFactoryOptions | Promise<DistributedLockFactoryOptions>;
  useClass?: Type<DistributedLockOptionsFactory>;
  useExisting?: InjectionToken<DistributedLockOptionsFactory>;
}

/** Checked options with all defaults filled in. */
export interface ResolvedModuleOptions {
  readonly backend: LockBackend;
  readonly namespace: string;
  readonly isNamespaceGiven: boolean;
  readonly instance: string;
  readonly defaults: ResolvedLockOptions;
  /** `defaults.leaseMs` if the user set it: the built-in default of elections differs from that of locks. */
  readonly givenLeaseMs: number | undefined;
  readonly shutdown: Required<ShutdownOptions>;
  /** Whether jobs run at each call, without a schedule and without a scheduler. */
  readonly isTest: boolean;
  readonly failOnBoot: boolean;
  readonly lockOrder: LockOrderMode;
  readonly jobs: Readonly<Record<string, JobOverride>>;
}

export const OPTION_NAMES = [
  'backend',
  'namespace',
  'defaults',
  'instance',
  'shutdown',
  'failOnBoot',
  'lockOrder',
  'jobs',
] as const;
export const DEFAULT_NAMESPACE = 'lock';
const FOR_ROOT_ASYNC = 'write DistributedLockModule.forRootAsync({ useFactory })';
const BESIDE_FACTORY = 'write it beside useFactory, because Nest needs it before the factory runs';
/** Where options belong that are often written at the top, or returned by a factory. */
const MISPLACED: Readonly<Record<string, string>> = {
  waitMs: 'write defaults: { waitMs }',
  leaseMs: 'write defaults: { leaseMs }',
  renew: 'write defaults: { renew }',
  drainMs: 'write shutdown: { drainMs }',
  abortGraceMs: 'write shutdown: { abortGraceMs }',
  name: BESIDE_FACTORY,
  isGlobal: BESIDE_FACTORY,
  useFactory: FOR_ROOT_ASYNC,
  useClass: FOR_ROOT_ASYNC,
  useExisting: FOR_ROOT_ASYNC,
  url: 'write backend: redisBackend({ url })',
  client: 'write backend: redisBackend({ client })',
  clients: 'write backend: redlockBackend({ clients })',
  dataSource: 'write backend: typeormBackend({ dataSource })',
  hosts: 'write backend: etcdBackend({ hosts })',
  servers: 'write backend: zookeeperBackend({ servers })',
};
/** Where options belong that are written beside `useFactory`. */
export const BELONGS_INTO_FACTORY: Readonly<Record<string, string>> = Object.fromEntries(
  OPTION_NAMES.map((name) => [
    name,
    'return it from useFactory, or write DistributedLockModule.forRoot() if there is no factory',
  ]),
);
const WRONG_OPTIONS = 'Wrong DistributedLockModule options';
const MAX_NAMESPACE_LENGTH = 64;
const MAX_INSTANCE_LENGTH = 255;
const MAX_NAME_LENGTH = 64;

/** `others`: names for the message about an unknown option. @throws LockConfigError that lists all errors at once */
export function resolveModuleOptions(
  options: DistributedLockFactoryOptions,
  others: readonly string[] = [],
): ResolvedModuleOptions {
  const errors = new OptionErrors();
  collectFactoryErrors(errors, options);
  errors.throwIfAny(WRONG_OPTIONS);
  const given = errors.object('options', options, [...OPTION_NAMES, ...others], MISPLACED);
  collectBackendErrors(errors, given);
  collectNamespaceErrors(errors, given);
  errors.text('instance', given.instance, { max: MAX_INSTANCE_LENGTH });
  collectLockErrors(errors, 'defaults', given.defaults);
  const shutdown = errors.object('shutdown', given.shutdown, ['drainMs', 'abortGraceMs']);
  errors.durationMs('shutdown.drainMs', shutdown.drainMs);
  errors.durationMs('shutdown.abortGraceMs', shutdown.abortGraceMs);
  errors.boolean('failOnBoot', given.failOnBoot);
  errors.oneOf('lockOrder', given.lockOrder, ['warn', 'throw', 'off']);
  collectOverrideErrors(errors, given.jobs);
  errors.throwIfAny(WRONG_OPTIONS);

  return {
    backend: options.backend,
    namespace: options.namespace ?? DEFAULT_NAMESPACE,
    isNamespaceGiven: options.namespace !== undefined,
    instance: options.instance ?? `${hostname()}:${process.pid}`,
    defaults: resolveLockOptions(options.defaults ?? {}, BUILT_IN_LOCK_OPTIONS),
    givenLeaseMs: options.defaults?.leaseMs,
    shutdown: {
      drainMs: options.shutdown?.drainMs ?? BUILT_IN_SHUTDOWN_OPTIONS.drainMs,
      abortGraceMs: options.shutdown?.abortGraceMs ?? BUILT_IN_SHUTDOWN_OPTIONS.abortGraceMs,
    },
    isTest: false,
    failOnBoot: options.failOnBoot ?? false,
    lockOrder: options.lockOrder ?? (process.env['NODE_ENV'] === 'production' ? 'off' : 'warn'),
    jobs: options.jobs ?? {},
  };
}

function collectFactoryErrors(errors: OptionErrors, returned: unknown): void {
  const isNothing = returned === undefined || returned === null;
  if (!isNothing && !isBackend(returned)) return;
  const got = isNothing ? 'nothing' : 'the backend itself';
  errors.add(`expected a factory to return { backend: … }, got ${got}`);
}

/** A namespace without a value would silently be the default, which other applications on the store have too. */
function collectNamespaceErrors(errors: OptionErrors, given: Record<string, unknown>): void {
  const { namespace } = given;
  errors.text('namespace', namespace, { max: MAX_NAMESPACE_LENGTH });
  if (namespace !== undefined || !('namespace' in given)) return;
  errors.add(
    `expected namespace to be the name of your application, got undefined${unsetVariableHint('namespace')}; leave the ` +
      `option out for the default, '${DEFAULT_NAMESPACE}'`,
  );
}

/** Checks the backend, and that it can keep the default lease. */
function collectBackendErrors(errors: OptionErrors, given: Record<string, unknown>): void {
  const { backend, defaults } = given;
  if (!isBackend(backend)) {
    const ways = 'redisBackend(…), redlockBackend(…), typeormBackend(…), etcdBackend(…), zookeeperBackend(…)';
    errors.add(
      `expected backend to be one of ${ways} and memoryBackend(), got ${formatValue(backend)}${unsetHint(given, 'backend')}${backendHint(backend)}`,
    );
  }
  const { leaseMs = BUILT_IN_LOCK_OPTIONS.leaseMs } = Object(defaults) as LockOptions;
  collectLeaseLimitErrors(errors, 'defaults.leaseMs', leaseMs, Object(backend) as LockBackend);
}

/**
 * Checks the options that must be known before any provider runs.
 *
 * @throws LockConfigError
 */
export function checkModuleIdentity({ name, isGlobal }: { name?: unknown; isGlobal?: unknown }): void {
  const errors = new OptionErrors();
  errors.text('name', name, { max: MAX_NAME_LENGTH });
  errors.boolean('isGlobal', isGlobal);
  errors.throwIfAny(WRONG_OPTIONS);
}

/** What to write instead of a value that is almost a backend. */
function backendHint(value: unknown): string {
  if (typeof value === 'function') return ': call it, as in redisBackend({ url })';
  const { duplicate, initialize } = Object(value) as Record<string, unknown>;
  if (typeof duplicate === 'function') return ': write redisBackend({ client })';
  return typeof initialize === 'function' ? ': write typeormBackend({ dataSource })' : '';
}

const isBackend = (value: unknown): value is LockBackend =>
  typeof value === 'object' && value !== null && 'execute' in value && typeof value.execute === 'function';
