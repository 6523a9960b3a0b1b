import { Cron } from '@nestjs/schedule';
import { LockConfigError } from '../core/errors.js';
import { formatValue } from '../core/format.js';
import {
  type Method,
  addMethodMetadata,
  decoratorNotCalledError,
  describeMethod,
  readMethodMetadata,
  replaceMethod,
  requireMethod,
  requireTextName,
} from '../decorators/decorated-method.js';
import { injectProperty, readProperty } from '../decorators/injected-property.js';
import { ELECTION_METADATA, type ElectionMetadata } from '../election/election.decorators.js';
import type { CronRun } from './job.js';
import { type JobRunner, getJobRunnerPropertyToken } from './job-runner.js';
import { type SingletonCronOptions, checkSingletonCronOptions } from './singleton-cron.options.js';

/** The metadata key of a guarded method. */
export const SINGLETON_CRON_METADATA = Symbol.for('nestjs-distributed-lock:singleton-cron');

/** The metadata key under which `@nestjs/schedule` marks a scheduled method. */
const SCHEDULER_TYPE = 'SCHEDULER_TYPE';

export interface SingletonCronGuard {
  readonly options: SingletonCronOptions;
  /** The cron expression given to `@SingletonCron` itself. */
  readonly expression: string | undefined;
  /** Whether the first argument was given as `undefined`, perhaps from an environment variable that is not set. */
  readonly isGivenUndefined: boolean;
}

/**
 * Runs a scheduled job once in the whole cluster for each tick (planned time). Only one replica can claim the tick in
 * the store, even if clocks differ or the job is very short. If the store cannot be reached, the tick is skipped.
 *
 * With an expression, it also schedules the method. Without one, it guards the `@Cron` or `@Interval` above or below
 * it, or, with a `deployKey`, the `@Timeout`. The method receives a {@link CronRun}. During a run, a call of the super
 * class's method and a call that passes on the `CronRun` belong to that run. Every other call claims a tick.
 *
 * The method must return a complete value: if it returns a stream, an iterator or an Observable, the run has failed, as
 * under `@Locked`.
 *
 * If the replica dies during a run, later ticks are skipped until the lease ends, and the tick is not run again. With
 * `onDeadRun: 'retry'` another replica then runs it again.
 *
 * @throws LockConfigError when the class is defined or the application boots, if the key, options or schedule are wrong
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
    const original = requireMethod(location, { target, name, descriptor });
    requireTextName(location, name);
    if (expression !== undefined && typeof expression !== 'string')
      throw wrongArgumentError(location, expression);
    checkSingletonCronOptions(options, location);
    const decorated = { target, name, method: original };
    if (readMethodMetadata(SINGLETON_CRON_METADATA, decorated).length > 0) {
      throw new LockConfigError(`${location}: expected it once on a method, found it twice. Remove one.`);
    }
    const elections = readMethodMetadata<ElectionMetadata>(ELECTION_METADATA, decorated);
    if (elections.some(({ value }) => value.kind === 'only')) throw leaderBelowError(location);
    const token = injectProperty(target, getJobRunnerPropertyToken(options.service), location);

    const guard: SingletonCronGuard = { options, expression, isGivenUndefined };
    replaceMethod(descriptor, original, async function (this: object, argument: unknown) {
      const body = (run: CronRun) => original.call(this, run);
      const runner = readProperty(this, token, location) as JobRunner;
      return runner.fire({ instance: this, method: String(name), guard, body, argument });
    });
    const method = descriptor.value as Method;
    addMethodMetadata(SINGLETON_CRON_METADATA, { target, name, method, value: guard });
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

const leaderBelowError = (location: string) =>
  new LockConfigError(
    `${location}: expected no @LeaderOnly below it: a replica that does not lead would claim the tick and not run it. Use the ` +
      `option leader instead: @SingletonCron({ leader: 'mailer' }).`,
  );

export const multipleSchedulesError = (location: string) =>
  new LockConfigError(
    `${location}: expected one schedule, found several on the same method: an expression here, @Cron, @Interval or @Timeout. ` +
      `Keep one of them.`,
  );
