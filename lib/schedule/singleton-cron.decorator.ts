import { SetMetadata } from '@nestjs/common';
import { Cron } from '@nestjs/schedule';
import { LockConfigError } from '../core/errors.js';
import { formatValue } from '../core/format.js';
import { requireMethod, describeMethod, decoratorNotCalledError } from '../decorators/decorated-method.js';
import { addMethodMetadata, readMethodMetadata } from '../decorators/method-metadata.js';
import { type Method, replaceMethod } from '../decorators/method-replacement.js';
import { readProperty, injectProperty } from '../decorators/injected-property.js';
import type { CronRun } from './cron-run.js';
import { type JobRunner, getJobRunnerPropertyToken } from './job-runner.js';
import { type SingletonCronOptions, checkSingletonCronOptions } from './singleton-cron.options.js';

/** Under which a guarded method keeps what guards it. */
export const SINGLETON_CRON_METADATA = Symbol.for('nestjs-distributed-lock:singleton-cron');

/** Where `@nestjs/schedule` says that a method has a schedule. */
const SCHEDULER_TYPE = 'SCHEDULER_TYPE';

export interface SingletonCronGuard {
  readonly options: SingletonCronOptions;
  /** The schedule that came with it. */
  readonly expression: string | undefined;
  /** Whether an argument was given, as `undefined`: perhaps an expression from a variable that is not set. */
  readonly isGivenUndefined: boolean;
}

/**
 * Runs a scheduled job once in the whole cluster, for each tick: at most one replica claims the planned instant in the
 * store, whatever their clocks say and however short the job. If the store cannot be reached, the tick is skipped.
 *
 * Alone it guards the `@Cron` or `@Interval` above or below it, or with a `deployKey` the `@Timeout`; with an expression it
 * schedules the method as well. The method receives a {@link CronRun}. In a run, a call of the super class, and one that
 * passes the run on, is part of that run; every other call claims a tick.
 *
 * If the replica dies in the middle of a run, later ticks are skipped until the lease is over, and the tick is gone; with
 * `onDeadRun: 'retry'` another replica runs it again then.
 *
 * @throws LockConfigError when the class is defined or the application boots, if something about it is wrong
 */
export function SingletonCron(options?: SingletonCronOptions): MethodDecorator;
export function SingletonCron(cronExpression: string, options?: SingletonCronOptions): MethodDecorator;
export function SingletonCron(
  ...given: [first?: string | SingletonCronOptions, second?: SingletonCronOptions, ...more: unknown[]]
): MethodDecorator {
  const [first, second = {}, ...more] = given;
  if (more.length > 0) throw decoratorNotCalledError('SingletonCron', first, second);
  const [expression, options] = isOptions(first) ? [undefined, first] : [first, second];
  const isGivenUndefined = given.length > 0 && first === undefined;
  return (target, name, descriptor) => {
    const location = describeMethod('SingletonCron', target, name);
    const original = requireMethod(location, target, descriptor);
    if (expression !== undefined && typeof expression !== 'string')
      throw wrongArgumentError(location, expression);
    checkSingletonCronOptions(options, location);
    if (
      Reflect.hasMetadata(SINGLETON_CRON_METADATA, original) ||
      readMethodMetadata(SINGLETON_CRON_METADATA, target, name).length > 0
    ) {
      throw new LockConfigError(`${location}: expected it once on a method, found it twice. Remove one.`);
    }
    const token = injectProperty(target, getJobRunnerPropertyToken(options.service), location);

    const guard: SingletonCronGuard = { options, expression, isGivenUndefined };
    replaceMethod(descriptor, original, function (this: object, ...args: unknown[]) {
      const body = (run: CronRun) => original.call(this, run);
      const runner = readProperty(this, token) as JobRunner;
      return runner.fire({ instance: this, method: String(name), guard, body, args });
    });
    SetMetadata(SINGLETON_CRON_METADATA, guard)(target, name, descriptor);
    addMethodMetadata(SINGLETON_CRON_METADATA, {
      target,
      name,
      method: descriptor.value as Method,
      value: guard,
    });
    if (expression === undefined) return;
    if (Reflect.hasMetadata(SCHEDULER_TYPE, original)) throw multipleSchedulesError(location);
    schedule(expression, options, location)(target, name, descriptor);
  };
}

const isOptions = (first: unknown): first is SingletonCronOptions =>
  typeof first === 'object' && first !== null && !Array.isArray(first);

const wrongArgumentError = (location: string, argument: unknown) =>
  new LockConfigError(`${location}: expected a cron expression or options, got ${formatValue(argument)}.`);

function schedule(expression: string, { timeZone }: SingletonCronOptions, location: string): MethodDecorator {
  if (expression.trim() === '') {
    throw new LockConfigError(`${location}: expected a cron expression, got an empty text.`);
  }
  return Cron(expression, timeZone === undefined ? {} : { timeZone });
}

export const multipleSchedulesError = (location: string) =>
  new LockConfigError(
    `${location}: expected one schedule, found several on the same method: an expression here, @Cron, @Interval or @Timeout. ` +
      `Keep one of them.`,
  );
