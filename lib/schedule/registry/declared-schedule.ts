import { LockConfigError } from '../../core/errors.js';
import { formatValue } from '../../core/format.js';
import { OptionErrors, unsetVariableHint } from '../../core/option-errors.js';
import type { FoundMethod } from '../../decorators/find-methods.js';
import { type SingletonCronGuard, multipleSchedulesError } from '../singleton-cron.decorator.js';
import type { MethodSchedule } from './nest-scheduler.js';

/** A method with `@SingletonCron`, and its instance. */
export interface GuardedMethod extends FoundMethod<SingletonCronGuard> {
  readonly location: string;
  readonly guard: SingletonCronGuard;
}

/** The name of its timer, which is its key too. An empty one is none, as Nest has it for `@Cron`. */
export function declaredName({ location }: GuardedMethod, { name }: MethodSchedule): string | undefined {
  if (name === undefined || name === '') return undefined;
  const errors = new OptionErrors();
  errors.requiredText('the name of its schedule, which is its key,', name, { max: 255 });
  errors.throwIfAny(location);
  return name;
}

/** @throws LockConfigError if the method has no schedule, several, or one that no timer keeps */
export function checkSchedule(
  { guard, location }: GuardedMethod,
  { cron, interval, timeout }: MethodSchedule,
): void {
  const { expression, isGivenUndefined } = guard;
  const { timeZone, deployKey } = guard.options;
  if ([cron, interval, timeout].filter((each) => each !== undefined).length > 1)
    throw multipleSchedulesError(location);
  // A decorator above has overwritten the schedule of @SingletonCron.
  if (expression !== undefined && cron?.cronTime !== expression) throw multipleSchedulesError(location);
  if (cron && timeZone !== undefined && cron.timeZone !== timeZone) {
    throw new LockConfigError(
      `${location}: expected the time zone in the options of @Cron, got ${timeZone} here. Move it.`,
    );
  }
  if (deployKey !== undefined && !timeout) {
    throw new LockConfigError(
      `${location}: expected @Timeout of @nestjs/schedule beside deployKey, got another schedule or none. A tick of ` +
        `@Cron or @Interval runs once without it: leave it out.`,
    );
  }
  if (timeout && deployKey === undefined) {
    throw new LockConfigError(
      `${location}: expected a deployKey beside @Timeout, such as the version of the application, got ` +
        `${'deployKey' in guard.options ? `undefined${unsetVariableHint('deployKey')}` : 'none'}. Without it, the store ` +
        `cannot distinguish a new deployment from a restart.`,
    );
  }
  if (!cron && !interval && !timeout) throw missingScheduleError(location, isGivenUndefined);
  if (interval) checkDelay(location, '@Interval', interval.timeout, 1);
  if (timeout) checkDelay(location, '@Timeout', timeout.timeout, 0);
}

/** The longest delay of a timer in Node. For other values than whole ms up to this one, a timer fires after 1 ms. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** @throws LockConfigError if the timer would have another delay */
function checkDelay(location: string, decorator: string, ms: unknown, min: number): void {
  if (typeof ms === 'number' && ms >= min && ms <= MAX_TIMER_MS) return;
  const isUnset = ms === undefined || Number.isNaN(ms);
  throw new LockConfigError(
    `${location}: expected the milliseconds of ${decorator} to be a number from ${min} to ${MAX_TIMER_MS}, got ` +
      `${formatValue(ms)}${isUnset ? unsetVariableHint('the decorator') : ''}.`,
  );
}

const missingScheduleError = (location: string, isGivenUndefined: boolean) =>
  new LockConfigError(
    isGivenUndefined
      ? `${location}: expected a cron expression, or @Cron or @Interval of @nestjs/schedule on the same method, got undefined as ` +
          `the argument. If it comes from an environment variable, set that variable before this class is loaded.`
      : `${location}: expected @Cron or @Interval of @nestjs/schedule on the same method, got neither. Add one, or give the ` +
          `expression: @SingletonCron('0 * * * *').`,
  );
