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
  errors.object('the argument', options, ['clock']);
  errors.throwIfAny('Wrong memoryBackend() options');
}
