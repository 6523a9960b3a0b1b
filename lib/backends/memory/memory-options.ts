import type { Clock } from '../../core/clock.js';
import { OptionErrors } from '../../core/option-errors.js';

export interface MemoryBackendOptions {
  /**
   * The clock of the backend and of the locks on it. Use a `SettableClock` in tests.
   *
   * @default the clock of the machine
   */
  clock?: Clock;
}

/** @throws LockConfigError for an unknown option */
export function checkMemoryOptions(options: MemoryBackendOptions): void {
  const errors = new OptionErrors();
  const { clock } = errors.object('the argument', options, ['clock']);
  collectClockErrors(errors, 'clock', clock);
  errors.throwIfAny('Wrong memoryBackend() options');
}

export function collectClockErrors(errors: OptionErrors, path: string, clock: unknown): void {
  const isClock = typeof (Object(clock) as Partial<Clock>).monotonicMs === 'function';
  errors.expect(path, clock, 'a clock, such as a SettableClock', isClock);
}
