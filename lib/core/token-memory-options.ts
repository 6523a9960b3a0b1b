import type { OptionErrors } from './option-errors.js';

/** The option of every backend for how long it remembers a key that nobody uses. */
export interface TokenMemoryOptions {
  /**
   * How long the backend remembers the newest fencing token of a key after the key was released or its lease has ended, in
   * ms. Then it deletes what it keeps for the key, unless somebody holds it, waits for it, or it has a tick of a job. The
   * next fencing token is at least the time of the store, and so larger than the forgotten one, unless the clock of the
   * store was set back by more than this time.
   *
   * @default 60_000
   */
  readonly tokenMemoryMs?: number;
}

export const TOKEN_MEMORY_OPTION = 'tokenMemoryMs';

export const DEFAULT_TOKEN_MEMORY_MS = 60_000;

/** Also covers small corrections of the store's clock. */
const MIN_TOKEN_MEMORY_MS = 1_000;

export function collectTokenMemoryErrors(errors: OptionErrors, value: unknown): void {
  errors.integerMs(TOKEN_MEMORY_OPTION, value, { min: MIN_TOKEN_MEMORY_MS });
}
